/** The whole recording in one strip: the busiest core of each moment, and the part in view. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { isFiltered } from "../address";
import { api, NO_FILTERS } from "../api";
import { duration } from "../format";
import { incidents } from "../live";
import { Placeholder } from "../resource";
import { change, coresRequested, extent, filters, following, measured, moveView, state, view, warm } from "../state";
import { blend, css, theme } from "../theme";
import type { CoreGrid, Span } from "../types";
import { centred, momentAt, position } from "./axis";
import { WindowFrame } from "./frame";
import { huesOf, worstByState } from "./heat";
import { Lane } from "./lane";
import { incidentLabel, openIncident, showWidth, WIDTHS } from "./navigation";
import { plotWidth, useCells } from "./plot";

/** The grid of the whole recording; the heatmap shows it until it has a finer one. */
export const overviewGrid = signal<CoreGrid | null>(null);

const HEIGHT = 34;
const AFTER_THE_HEATMAP_MS = 400;

export function Overview(): JSX.Element | null {
  const canvas = useRef<HTMLCanvasElement>(null);
  const whole = extent.value;
  const measure = measured.value;
  const core = "worst core";
  const read = useCells(
    `overview ${measure}`,
    (plan, signal) => {
      const answer = api.cores({ ...plan, cpus: "", filters: NO_FILTERS }, plan.cells, measure, signal);
      coresRequested.value = true;
      return answer;
    },
    { over: whole },
  );
  useEffect(() => {
    overviewGrid.value = read.value;
    if (read.value !== null || read.error !== null) warm.value = true;
  }, [read.value, read.error]);
  const wanted = filters.value;
  const filtered = isFiltered(wanted);
  // This reads every sample of the recording, so the heatmap of the view goes first.
  const match = useCells(
    filtered && warm.value ? JSON.stringify(["overview", measure, wanted]) : null,
    (plan, signal) => api.cores({ ...plan, cpus: "", filters: wanted }, plan.cells, measure, signal),
    { over: whole, delayMs: AFTER_THE_HEATMAP_MS },
  );
  const current = match.key?.startsWith(JSON.stringify(["overview", measure, wanted]));
  const matching = filtered && current ? match.value : null;
  const width = plotWidth.value;
  const { cores } = state.value;
  useEffect(() => {
    const grid = matching ?? read.value;
    if (canvas.current && grid && whole) drawStrip(canvas.current, onlyCores(grid, cores), whole, width);
  }, [read.value, matching, cores, whole?.since, whole?.until, width, theme.value]);
  const shown = view.value;
  if (!whole || !shown) return null;
  const missed = filtered && matching === null;
  const aside = missed ? `${core}, no filter` : filtered ? "most that matches" : core;
  const of = filtered && !missed ? "the most that matches the filter on any core" : "the worst core of each moment";
  return (
    <Lane name="overview" title="overview" aside={aside}>
      <canvas
        ref={canvas}
        class={`strip ${missed ? "missed" : ""}`}
        role="img"
        data-testid="overview"
        data-filtered={filtered && !missed}
        title={(filtered && match.error) || undefined}
        aria-label={`the whole recording, ${duration(whole.until - whole.since)}: ${of}`}
        onPointerDown={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const at = momentAt(event.clientX - box.left, whole, box.width);
          moveView(centred(at, shown.until - shown.since, whole), "push");
        }}
      />
      <WindowFrame whole={whole} shown={shown} />
      <IncidentTicks whole={whole} />
      {missed && match.error === null && shown.until - shown.since < whole.until - whole.since && (
        <div class="over-strip">
          <Placeholder of={match} what="what matches in the whole recording" />
        </div>
      )}
    </Lane>
  );
}

/** Where incidents are in the whole recording; the lane below has those in view, by keyboard too. */
function IncidentTicks({ whole }: { whole: Span }): JSX.Element {
  return (
    <div class="incident-ticks" aria-hidden="true" data-testid="incident-ticks">
      {incidents.value.map((each) => (
        <i
          key={each.id}
          class={each.severity ?? "waiting"}
          style={{ left: `${position(each.since, whole, plotWidth.value)}px` }}
          title={incidentLabel(each)}
          onPointerDown={(event) => {
            event.stopPropagation();
            openIncident(each);
          }}
        />
      ))}
    </div>
  );
}

/** The same grid with these cores alone; null is every core. */
function onlyCores(grid: CoreGrid, cores: number[] | null): CoreGrid {
  if (cores === null) return grid;
  const lines = grid.cpus.flatMap((cpu, line) => (cores.includes(cpu) ? [line] : []));
  const [values, dominant] = [new Uint16Array(lines.length * grid.cells), new Uint8Array(lines.length * grid.cells)];
  lines.forEach((line, i) => {
    values.set(grid.values.subarray(line * grid.cells, (line + 1) * grid.cells), i * grid.cells);
    dominant.set(grid.dominant.subarray(line * grid.cells, (line + 1) * grid.cells), i * grid.cells);
  });
  return { ...grid, cpus: lines.map((line) => grid.cpus[line]), values, dominant };
}

function drawStrip(canvas: HTMLCanvasElement, grid: CoreGrid, whole: Span, width: number): void {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.round(HEIGHT * ratio);
  const context = canvas.getContext("2d");
  if (!context) return;
  const look = theme.peek();
  const hues = huesOf(grid, look);
  const worst = worstByState(grid);
  context.fillStyle = css(look.ground);
  context.fillRect(0, 0, canvas.width, canvas.height);
  const cellMs = (grid.until - grid.since) / grid.cells;
  for (let cell = 0; cell < grid.cells; cell++) {
    const left = Math.floor(position(grid.since + cell * cellMs, whole, canvas.width));
    const right = Math.ceil(position(grid.since + (cell + 1) * cellMs, whole, canvas.width));
    if (worst.every((values) => values[cell] < 0)) {
      context.fillStyle = look.hatch;
      context.fillRect(left, canvas.height - 2 * ratio, right - left, 2 * ratio);
      continue;
    }
    // The calm and the tall ones first: what the kernel does stands before what programs do.
    const found = worst
      .map((values, state) => ({ hue: hues[state], value: values[cell] }))
      .filter((each) => each.value > 0)
      .sort((a, b) => a.hue.most - b.hue.most || b.value - a.value);
    for (const { hue, value } of found) {
      const height = Math.min(1, value / grid.full) * canvas.height;
      context.fillStyle = css(blend(look.ground, hue.colour, hue.most * 0.9));
      context.fillRect(left, canvas.height - height, right - left, height);
    }
  }
}

export function WidthButtons(): JSX.Element | null {
  const [shown, whole] = [view.value, extent.value];
  if (!shown || !whole) return null;
  const length = shown.until - shown.since;
  return (
    <div class="widths" role="group" aria-label="how much time is shown">
      {WIDTHS.map(({ label, ms, title }) => {
        const all = whole.until - whole.since;
        const target = ms ?? all;
        const pressed = Math.abs(length - target) < 0.02 * target && (ms === null || length < all);
        return (
          <button
            type="button"
            key={label}
            aria-pressed={pressed}
            title={`show ${title}`}
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
