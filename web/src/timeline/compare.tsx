/** Another recording, or another time of this one, below the cores: on the same axis, moved so that both fit. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce } from "../a11y";
import { api, NO_FILTERS, type Which } from "../api";
import { day, duration, range, time } from "../format";
import { Placeholder, useResource } from "../resource";
import { change, extent, measured, otherRecording, pointedAt, recording, shift, state, view } from "../state";
import { theme } from "../theme";
import type { Incident, Span } from "../types";
import { momentAt } from "./axis";
import { heightOf, rowsFor, valueText, worstCells } from "./heat";
import { drawHeat, pictureOf } from "./heatdraw";
import { IncidentMarks } from "./incidents";
import { Lane } from "./lane";
import { plotWidth, tallest, useCells } from "./plot";
import { drawSlices } from "./slices/draw";
import { useSlicesOf } from "./slices/view";

/** Causes of the other recording arrive as the background diagnosis finds them. */
const WAITING_MS = 2_000;

export function CompareLanes(): JSX.Element {
  return (
    <>
      {recording.value?.compared && <OtherRecording />}
      <OtherTime />
    </>
  );
}

/** The recording that the server was started to compare with. Dragging moves it. */
function OtherRecording(): JSX.Element | null {
  const read = useResource("other recording", (signal) => api.otherRecording(signal));
  useEffect(() => {
    otherRecording.value = read.value;
  }, [read.value]);
  const other = otherRecording.value;
  const shown = view.value;
  if (!other || !shown) return <Placeholder of={read} what="the other recording" />;
  const by = shift.value;
  return (
    <Lane name="compared" title={other.node} aside={`${other.cores} cores`}>
      <p class="compare-head" data-testid="compared">
        <strong>{other.node}</strong> {day(shown.since + by, state.value.utc)}{" "}
        {range(shown.since + by, shown.until + by, state.value.utc)}
        <span class="muted">{moved(by)}</span>
        <button type="button" aria-pressed={by === 0} onClick={() => move(0)}>
          same clock
        </button>
        <button
          type="button"
          aria-pressed={by === other.since - (recording.value?.since ?? 0)}
          onClick={() => move(other.since - (recording.peek()?.since ?? 0))}
        >
          from their starts
        </button>
      </p>
      <OtherIncidents over={{ since: shown.since + by, until: shown.until + by }} />
      <Cores which="other" by={by} whole={{ since: other.since, until: other.until }} onMove={move} />
    </Lane>
  );
}

/** The incidents of the other recording. A click puts one below the selection, or below the middle of the view. */
function OtherIncidents({ over }: { over: Span }): JSX.Element {
  const [attempt, setAttempt] = useState(0);
  const read = useResource(`other incidents ${attempt}`, (signal) => api.incidents(signal, "other"));
  const waits = read.value?.some((each) => each.state === "waiting") ?? false;
  useEffect(() => {
    if (!waits || read.loading) return undefined;
    const timer = window.setTimeout(() => setAttempt((before) => before + 1), WAITING_MS);
    return () => window.clearTimeout(timer);
  }, [waits, read.loading]);
  return (
    <IncidentMarks
      of={read.value ?? []}
      over={over}
      known={read.value !== null}
      keys=""
      testId="incidents-other"
      onOpen={bringBelow}
    />
  );
}

function bringBelow(incident: Incident): void {
  const shown = view.peek();
  if (shown) move(incident.since - (state.peek().s0 ?? (shown.since + shown.until) / 2));
}

function moved(by: number): string {
  return by === 0 ? "by the same clock" : `${duration(Math.abs(by))} ${by > 0 ? "later" : "earlier"}`;
}

function move(by: number): void {
  change({ shift: Math.round(by) }, "replace");
  announce(`compared with what was ${by === 0 ? "at the same time" : moved(by)}`);
}

/** The time that the selection is compared with in the panel Difference: its start below that of the selection. */
function OtherTime(): JSX.Element | null {
  const { tab, baseline, b0, b1, s0, utc } = state.value;
  const whole = extent.value;
  if (tab !== "difference" || baseline !== "window" || b0 === null || b1 === null || s0 === null || !whole) return null;
  return (
    <Lane name="baseline" title="baseline" aside={time(b0, utc)}>
      <p class="compare-head" data-testid="compared-time">
        <strong>{range(b0, b1, utc)}</strong>
        <span class="muted">{moved(b0 - s0)}, below the selection</span>
      </p>
      <Cores which="this" by={b0 - s0} whole={whole} />
    </Lane>
  );
}

/** Cores x time by the chosen measure, of the time that is `by` after the view. */
function Cores(props: { which: Which; by: number; whole: Span; onMove?: (by: number) => void }): JSX.Element {
  const { which, by, whole, onMove } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const dragged = useRef<{ x: number; by: number } | null>(null);
  const [shown, width, look, measure] = [view.value, plotWidth.value, theme.value, measured.value];
  const there = shown && { since: shown.since + by, until: shown.until + by };
  const every = { cpus: "", filters: NO_FILTERS, recording: which };
  const read = useCells(
    `compare ${which} ${measure}`,
    (plan, signal) => api.cores({ ...plan, ...every }, plan.cells, measure, signal),
    { over: there, whole },
  );
  const grid = read.value;
  const rows = useMemo(() => rowsFor(grid?.cpus ?? [], { tallest: tallest.value / 2 }), [grid, tallest.value]);
  const picture = useMemo(() => grid && pictureOf(grid, rows, look, "heat"), [grid, rows, look]);
  const slices = useSlicesOf(there, whole, every).value;
  const { marked } = state.value;
  useEffect(() => {
    if (!canvas.current || !there) return;
    const pictures = picture ? [picture] : [];
    drawHeat(canvas.current, { width, rows, view: there, whole, look, pictures, paint: null });
    if (slices) drawSlices(canvas.current, { rows, view: there, look, slices, marked });
    // For tests: what the rows show.
    canvas.current.dataset.slices = slices ? `${slices.since} ${slices.until}` : "";
  }, [there?.since, there?.until, width, rows, look, picture, slices, marked]);
  const perPixel = shown && width > 0 ? (shown.until - shown.since) / width : 0;
  const [worst] = grid && there ? worstCells(grid, there, 1) : [];
  const worstText = worst?.value ? `; the worst: core ${worst.cpu}, ${valueText(worst)}` : "";
  const keys = onMove ? ". Left and right arrows move it" : "";
  return (
    <>
      <canvas
        ref={canvas}
        class={`heat ${onMove ? "movable" : ""}`}
        style={{ height: `${Math.max(14, heightOf(rows))}px` }}
        tabIndex={onMove ? 0 : undefined}
        role={onMove ? "application" : "img"}
        data-testid={`cores-${which}`}
        aria-label={`cores of what is compared${worstText}${keys}`}
        onKeyDown={(event) => {
          const step = { ArrowLeft: 1, ArrowRight: -1 }[event.key];
          if (!onMove || !step) return;
          event.preventDefault();
          onMove(by + step * Math.max(10, perPixel * 10));
        }}
        onPointerDown={(event) => {
          if (!onMove) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          dragged.current = { x: event.clientX, by };
        }}
        onPointerMove={(event) => {
          const begun = dragged.current;
          if (begun) onMove?.(begun.by - (event.clientX - begun.x) * perPixel);
          else if (shown) {
            const place = event.currentTarget.getBoundingClientRect();
            pointedAt.value = momentAt(event.clientX - place.left, shown, place.width);
          }
        }}
        onPointerUp={() => {
          dragged.current = null;
        }}
        onPointerCancel={() => {
          dragged.current = null;
        }}
        onPointerLeave={() => {
          pointedAt.value = null;
        }}
      />
      <Placeholder of={read} what="the cores" />
    </>
  );
}
