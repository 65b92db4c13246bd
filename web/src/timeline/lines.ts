/** Lines of a lane, ready for drawing: points where something was measured, breaks where nothing was recorded. Pure. */
import type { Lane, Span } from "../types";

export interface Lines {
  /** Moments, rising. */
  times: number[];
  /** One list per series; null breaks the line. */
  values: (number | null)[][];
}

/** A point that was measured. */
export interface Measured {
  at: number;
  value: number;
}

/**
 * Cells without a value are left out (a source may be read less often than a cell is wide); a gap of the recording
 * breaks every line.
 */
export function linesOf(
  lane: Lane,
  window: Span & { cells: number },
  gaps: readonly (readonly [number, number])[],
): Lines {
  const width = (window.until - window.since) / window.cells;
  const points: Point[] = [];
  for (let cell = 0; cell < window.cells; cell++) {
    const values = lane.series.map((series) => series.values[cell] ?? null);
    if (values.some((value) => value !== null)) points.push({ at: window.since + (cell + 0.5) * width, values });
  }
  // Between what was measured before and after, a view that holds no point is crossed by the line.
  lane.series.forEach((series, i) => {
    for (const outer of [series.before, series.after]) {
      if (outer) points.push({ at: outer[0], values: lane.series.map((_, j) => (j === i ? outer[1] : null)) });
    }
  });
  const drawn = joined(points);
  const [first, last] = [drawn.at(0)?.at ?? 0, drawn.at(-1)?.at ?? 0];
  for (const [since, until] of gaps) {
    if (until > Math.min(first, window.since) && since < Math.max(last, window.until)) {
      drawn.push({ at: (since + until) / 2, values: lane.series.map(() => null) });
    }
  }
  drawn.sort((a, b) => a.at - b.at);
  return {
    times: drawn.map((point) => point.at),
    values: lane.series.map((_series, i) => drawn.map((point) => point.values[i])),
  };
}

interface Point {
  at: number;
  values: (number | null)[];
}

/** Points of one moment as one, in the order of time. */
function joined(points: Point[]): Point[] {
  const found: Point[] = [];
  for (const point of [...points].sort((a, b) => a.at - b.at)) {
    const same = found.at(-1);
    if (same?.at === point.at) same.values = same.values.map((value, i) => value ?? point.values[i]);
    else found.push({ ...point });
  }
  return found;
}

/** What was measured last before a moment, or at it. */
export function lastAt(lines: Lines, series: number, at: number): Measured | null {
  let found: Measured | null = null;
  for (let i = 0; i < lines.times.length && lines.times[i] <= at; i++) {
    const value = lines.values[series][i];
    if (value !== null) found = { at: lines.times[i], value };
  }
  return found;
}

/** The greatest value within a view; null where there is none. */
export function greatest(lines: Lines, series: number, view: Span): number | null {
  let found: number | null = null;
  lines.times.forEach((at, i) => {
    const value = lines.values[series][i];
    if (value !== null && at >= view.since && at <= view.until && (found === null || value > found)) found = value;
  });
  return found;
}

/**
 * The lane whose greatest value lies furthest above what it normally has: by the distance from the median in steps of
 * the upper half's spread, so that a lane that rises and falls all the time does not win. Null where none has values.
 */
export function mostDeviating(lanes: readonly Lane[]): string | null {
  let best: { name: string; deviation: number } | null = null;
  for (const lane of lanes) {
    for (const series of lane.series) {
      const known = series.values.filter((value) => value !== null).sort((a, b) => a - b);
      if (known.length === 0) continue;
      const at = (share: number): number => known[Math.floor(share * (known.length - 1))];
      const [median, most] = [at(0.5), at(1)];
      const usual = Math.max(at(0.95) - median, Math.abs(median) * 0.1, most * 0.01, Number.EPSILON);
      const deviation = (most - median) / usual;
      if (!best || deviation > best.deviation) best = { name: lane.name, deviation };
    }
  }
  return best?.name ?? null;
}

/** The first words of a line's title, where there is room for no more. */
export function briefly(title: string): string {
  return title.split(/ (?:as|by|that) /)[0];
}
