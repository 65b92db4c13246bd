/** The window over the overview: drag it, or its ends. */
import type { JSX } from "preact";
import { range } from "../format";
import { following, moveView, state } from "../state";
import type { Span } from "../types";
import { position, SHORTEST_VIEW_MS, within } from "./axis";
import { plotWidth } from "./plot";

type Grip = "since" | "until" | "both";

export function WindowFrame({ whole, shown }: { whole: Span; shown: Span }): JSX.Element {
  const width = plotWidth.value;
  const left = Math.max(0, position(shown.since, whole, width));
  const right = Math.min(width, position(shown.until, whole, width));
  const grab = (grip: Grip) => (event: PointerEvent) => {
    event.preventDefault();
    event.stopPropagation();
    const target = event.currentTarget as HTMLElement;
    target.setPointerCapture(event.pointerId);
    const start = event.clientX;
    const move = (moved: PointerEvent): void => {
      const by = ((moved.clientX - start) / width) * (whole.until - whole.since);
      moveView(dragged(shown, whole, grip, by));
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("lostpointercapture", () => target.removeEventListener("pointermove", move), {
      once: true,
    });
  };
  const label = range(shown.since, shown.until, state.value.utc);
  const isAll = right - left >= width - 1;
  return (
    <div
      class={`frame ${isAll ? "whole" : ""}`}
      style={{ left: `${left}px`, width: `${Math.max(6, right - left)}px` }}
      onPointerDown={grab("both")}
      title={following.value ? "follows the recording" : label}
      data-testid="frame"
    >
      <i class="grip left" onPointerDown={grab("since")} />
      <i class="grip right" onPointerDown={grab("until")} />
    </div>
  );
}

export function dragged(shown: Span, whole: Span, grip: Grip, by: number): Span {
  if (grip === "both") return within({ since: shown.since + by, until: shown.until + by }, whole);
  const since = grip === "since" ? Math.min(shown.since + by, shown.until - SHORTEST_VIEW_MS) : shown.since;
  const until = grip === "until" ? Math.max(shown.until + by, shown.since + SHORTEST_VIEW_MS) : shown.until;
  return { since: Math.max(since, whole.since), until: Math.min(until, whole.until) };
}
