/** The time axis: positions, ticks, and cells of the screen. Pure. */
import { day, offset, time, zone } from "../format";
import type { Span } from "../types";

const S = 1000;
const M = 60 * S;
const H = 60 * M;
const D = 24 * H;

/** Widths of cells and distances of ticks: round for people, and each a part of the larger ones. */
export const STEPS: readonly number[] = [
  10, 20, 50, 100, 200, 500, S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S, M, 2 * M, 5 * M, 10 * M, 15 * M, 30 * M, H,
  2 * H, 3 * H, 6 * H, 12 * H, D, 2 * D, 7 * D,
];

/** Some twenty samples of a core. */
export const SHORTEST_VIEW_MS = 200;
const MOST_CELLS = 4000;
/** A live view of hours is redrawn this often; one of minutes every second. */
const LAG_MS = 5 * S;

export function position(at: number, view: Span, width: number): number {
  return ((at - view.since) / (view.until - view.since)) * width;
}

export function momentAt(x: number, view: Span, width: number): number {
  return view.since + (x / Math.max(1, width)) * (view.until - view.since);
}

/** The least step of which at most `most` fit into a span. */
export function stepFor(spanMs: number, most: number, least: number): number {
  const wanted = spanMs / Math.max(1, most);
  const found = STEPS.find((step) => step >= least && step >= wanted);
  return found ?? Math.ceil(wanted / D) * D;
}

export interface Tick {
  at: number;
  label: string;
  /** A new day begins here. */
  day: boolean;
}

/**
 * Ticks at round moments of the shown zone, not nearer than `least`; also after its clocks were changed: the first tick
 * then has the offset.
 */
export function ticks(view: Span, width: number, utc: boolean, least = 10): Tick[] {
  const step = stepFor(view.until - view.since, Math.max(2, Math.floor(width / 90)), least);
  const found: Tick[] = [];
  const first = round(view.since, step, utc);
  for (let at = first < view.since ? later(first, step, utc) : first; at < view.until; at = later(at, step, utc)) {
    const last = found.at(-1);
    const isDay = last ? day(at, utc) !== day(last.at, utc) : (at + offset(at, utc)) % D === 0;
    const changed = last !== undefined && offset(at, utc) !== offset(last.at, utc);
    const clock = time(at, utc, true);
    const label = isDay ? day(at, utc) : step >= M ? clock.slice(0, 5) : clock;
    found.push({ at, day: isDay, label: changed ? `${label} ${zone(at, utc)}` : label });
  }
  return found;
}

/** The moment nearest to this one at which the shown clock is at a multiple of the step. */
function round(at: number, step: number, utc: boolean): number {
  const local = Math.round((at + offset(at, utc)) / step) * step;
  const near = local - offset(at, utc);
  // Clocks may be changed between the two.
  return local - offset(near, utc);
}

function later(at: number, step: number, utc: boolean): number {
  const next = round(at + step, step, utc);
  return next > at ? next : at + step;
}

/** A request: a window a little larger than the view, in cells of a round width. */
export interface Plan extends Span {
  cells: number;
  step: number;
}

/**
 * Keeps the previous plan while it covers the view at the right width, so that panning sends no request.
 * `least` is the shortest useful cell (counters are read each second, samples more often).
 */
export function planCells(view: Span, whole: Span, width: number, before: Plan | null, least: number): Plan {
  const step = stepFor(view.until - view.since, Math.max(50, width), least);
  if (before && before.step === step) {
    const since = Math.max(view.since, whole.since);
    const until = Math.min(view.until, whole.until);
    if (before.since <= since && before.until > until - Math.min(step, LAG_MS)) return before;
  }
  const margin = (view.until - view.since) / 2;
  const room = MOST_CELLS * step - (view.until - view.since);
  const around = Math.max(0, Math.min(margin, room / 2 - step));
  const since = Math.max(whole.since, Math.floor((view.since - around) / step) * step);
  const until = Math.min(whole.until, Math.ceil((view.until + around) / step) * step);
  const cells = Math.min(MOST_CELLS, Math.max(1, Math.floor((until - since) / step)));
  return { since, until: Math.max(until, since + 1), cells, step };
}

/** A view of a length, moved so that it lies within what is recorded. */
export function within(view: Span, whole: Span): Span {
  const length = Math.max(view.until - view.since, 1);
  if (length >= whole.until - whole.since) return { ...whole };
  const since = Math.min(Math.max(view.since, whole.since), whole.until - length);
  return { since, until: since + length };
}

/** Factor below 1 looks closer. The moment `around` keeps its place on the screen. */
export function zoomed(view: Span, whole: Span, factor: number, around: number): Span {
  const length = view.until - view.since;
  const wanted = Math.max(Math.min(SHORTEST_VIEW_MS, whole.until - whole.since), length * factor);
  const share = (around - view.since) / length;
  const since = around - share * wanted;
  return within({ since, until: since + wanted }, whole);
}

export function panned(view: Span, whole: Span, byMs: number): Span {
  return within({ since: view.since + byMs, until: view.until + byMs }, whole);
}

export function centred(at: number, length: number, whole: Span): Span {
  return within({ since: at - length / 2, until: at + length / 2 }, whole);
}
