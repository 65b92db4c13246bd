/** The whole recording in one strip: the busiest core of each moment, and the window that is shown. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { api, NO_FILTERS } from "../api";
import { duration, range } from "../format";
import { change, extent, following, moveView, state, view } from "../state";
import { blend, css, theme } from "../theme";
import type { CoreGrid, Span } from "../wire";
import { centred, momentAt, position, SHORTEST_VIEW_MS, within } from "./axis";
import { huesOf, strength, worstOfAll } from "./heat";
import { Lane } from "./lane";
import { showWidth, WIDTHS } from "./moves";
import { plotWidth, useCells } from "./plot";

/** Everything at a glance; the heatmap shows it until it has something finer. */
export const overviewGrid = signal<CoreGrid | null>(null);

const HEIGHT = 34;

export function Overview(): JSX.Element | null {
  const canvas = useRef<HTMLCanvasElement>(null);
  const whole = extent.value;
  const { measure } = state.value;
  const read = useCells(
    `overview ${measure}`,
    (plan, signal) => api.cores({ ...plan, cpus: "", filters: NO_FILTERS }, plan.cells, measure, signal),
    { over: whole, perPixel: 0.5 },
  );
  useEffect(() => {
    overviewGrid.value = read.value;
  }, [read.value]);
  const width = plotWidth.value;
  useEffect(() => {
    if (canvas.current && read.value && whole) drawStrip(canvas.current, read.value, whole, width);
  }, [read.value, whole?.since, whole?.until, width, theme.value]);
  const shown = view.value;
  if (!whole || !shown) return null;
  return (
    <Lane name="overview" title="overview" aside="busiest core">
      <canvas
        ref={canvas}
        class="strip"
        role="img"
        aria-label={`the whole recording, ${duration(whole.until - whole.since)}: the busiest core of each moment`}
        onPointerDown={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const at = momentAt(event.clientX - box.left, whole, box.width);
          moveView(centred(at, shown.until - shown.since, whole), "push");
        }}
      />
      <WindowFrame whole={whole} shown={shown} />
    </Lane>
  );
}

function drawStrip(canvas: HTMLCanvasElement, grid: CoreGrid, whole: Span, width: number): void {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.round(HEIGHT * ratio);
  const context = canvas.getContext("2d");
  if (!context) return;
  const look = theme.peek();
  const hues = huesOf(grid, look);
  const { value, dominant, recorded } = worstOfAll(grid);
  context.fillStyle = css(look.ground);
  context.fillRect(0, 0, canvas.width, canvas.height);
  const cellMs = (grid.until - grid.since) / grid.cells;
  for (let cell = 0; cell < grid.cells; cell++) {
    const left = Math.floor(position(grid.since + cell * cellMs, whole, canvas.width));
    const right = Math.ceil(position(grid.since + (cell + 1) * cellMs, whole, canvas.width));
    if (!recorded[cell]) {
      context.fillStyle = look.hatch;
      context.fillRect(left, canvas.height - 2 * ratio, right - left, 2 * ratio);
      continue;
    }
    const hue = hues[Math.min(dominant[cell], hues.length - 1)] ?? look.ink;
    context.fillStyle = css(blend(look.ground, hue, Math.max(0.35, strength(value[cell], grid.full))));
    const height = (value[cell] / grid.full) * canvas.height;
    context.fillRect(left, canvas.height - height, right - left, height);
  }
}

type Grip = "since" | "until" | "both";

/** The window over the strip: drag it, or its ends. */
function WindowFrame({ whole, shown }: { whole: Span; shown: Span }): JSX.Element {
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
  const words = range(shown.since, shown.until, state.value.utc);
  const isAll = right - left >= width - 1;
  return (
    <div
      class={`frame ${isAll ? "whole" : ""}`}
      style={{ left: `${left}px`, width: `${Math.max(6, right - left)}px` }}
      onPointerDown={grab("both")}
      title={following.value ? "follows the recording" : words}
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

export function WidthButtons(): JSX.Element | null {
  const [shown, whole] = [view.value, extent.value];
  if (!shown || !whole) return null;
  const length = shown.until - shown.since;
  return (
    <div class="widths" role="group" aria-label="how much time is shown">
      {WIDTHS.map(({ label, ms, words }) => {
        const all = whole.until - whole.since;
        const target = ms ?? all;
        const pressed = Math.abs(length - target) < 0.02 * target && (ms === null || length < all);
        return (
          <button
            type="button"
            key={label}
            aria-pressed={pressed}
            title={`show ${words}`}
            disabled={ms !== null && ms >= all}
            onClick={() => showWidth(ms)}
          >
            {label}
          </button>
        );
      })}
      {following.value && (
        <button type="button" class="quiet" onClick={() => change({ since: shown.since, until: shown.until })}>
          hold
        </button>
      )}
    </div>
  );
}
