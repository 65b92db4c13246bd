/** Lines of a lane, ready for drawing: points where something was measured, breaks where nothing was recorded. Pure. */
import type { Lane, Span } from "../wire";

export interface Lines {
  /** Moments, rising. */
  times: number[];
  /** One list per series; null breaks the line. */
  values: (number | null)[][];
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
  const points: { at: number; values: (number | null)[] }[] = [];
  for (let cell = 0; cell < window.cells; cell++) {
    const values = lane.series.map((series) => series.values[cell] ?? null);
    if (values.some((value) => value !== null)) points.push({ at: window.since + (cell + 0.5) * width, values });
  }
  for (const [since, until] of gaps) {
    if (until > window.since && since < window.until) {
      points.push({ at: (since + until) / 2, values: lane.series.map(() => null) });
    }
  }
  points.sort((a, b) => a.at - b.at);
  return {
    times: points.map((point) => point.at),
    values: lane.series.map((_series, i) => points.map((point) => point.values[i])),
  };
}

/** The value of a series at a moment: the last one measured before it. */
export function valueAt(lines: Lines, series: number, at: number): number | null {
  let found: number | null = null;
  for (let i = 0; i < lines.times.length && lines.times[i] <= at; i++) found = lines.values[series][i] ?? found;
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
