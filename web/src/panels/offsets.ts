/** The grid of the sub-second view: times, counts and ranges of its cells. Pure. */
import type { Span, Subsecond } from "../types";

/** More columns than this are neither requested nor drawn. */
export const MOST_COLUMNS = 1800;
const LEAST_COLUMN_MS = 100;
const MOST_COLUMN_MS = 60_000;
const MOST_TICKS = 6;

export interface Cell {
  column: number;
  row: number;
}

/** The requested column width, or one that is wide enough to show all columns. */
export function fitting(of: Span, column: number): number {
  const least = (of.until - of.since) / MOST_COLUMNS;
  let wide = Math.max(LEAST_COLUMN_MS, column);
  while (wide < least) wide *= 2;
  return Math.min(MOST_COLUMN_MS, wide);
}

export function countOf(grid: Subsecond, { column, row }: Cell): number {
  return grid.counts[column * grid.rows + row];
}

export function kernelOf(grid: Subsecond, { column, row }: Cell): number {
  return grid.kernel[column * grid.rows + row];
}

/** Which state most samples of a cell have: its hue. */
export function stateOf(grid: Subsecond, cell: Cell): "system" | "user" {
  return 2 * kernelOf(grid, cell) > countOf(grid, cell) ? "system" : "user";
}

/** Counts of faintest and full strength. */
export interface Scale {
  least: number;
  full: number;
}

/** Steady work scatters by about the square root of its count: a scale of several times that shows it as an even tone,
 * on which stripes stand out. Single cells beyond the percentiles don't make all others alike. */
const SCATTERS = 4;
const LOW_SHARE = 0.05;
const HIGH_SHARE = 0.99;

/** The scale that shows what differs among the cells with samples. */
export function scaleOf(grid: Subsecond): Scale {
  const found = grid.counts.filter((count) => count > 0).sort();
  if (found.length === 0) return { least: 0, full: 1 };
  const at = (share: number): number => found[Math.floor(share * (found.length - 1))];
  const middle = at(0.5);
  const scatter = SCATTERS * Math.sqrt(middle);
  return {
    least: Math.max(0, Math.floor(Math.min(at(LOW_SHARE), middle - scatter))),
    full: Math.min(grid.most, Math.ceil(Math.max(at(HIGH_SHARE), middle + scatter))),
  };
}

/** Where on the scale a count lies, 0 to 1. */
export function strengthOf(count: number, { least, full }: Scale): number {
  return clamp((count - least) / (full - least), 1);
}

export function startOf(grid: Subsecond, { column, row }: Cell): number {
  return grid.since + column * grid.column_ms + (row * grid.column_ms) / grid.rows;
}

/** The cell at a place of the drawing, given as shares of its size: time runs up in a column. */
export function cellAt(grid: Subsecond, right: number, down: number): Cell {
  const column = Math.floor(right * grid.columns);
  const row = grid.rows - 1 - Math.floor(down * grid.rows);
  return { column: clamp(column, grid.columns - 1), row: clamp(row, grid.rows - 1) };
}

/** From the earlier of two cells to the end of the later one, across the columns between. */
export function spanOf(grid: Subsecond, one: Cell, other: Cell): Span {
  const [first, last] = startOf(grid, one) <= startOf(grid, other) ? [one, other] : [other, one];
  const since = Math.max(grid.from, Math.floor(startOf(grid, first)));
  const until = Math.min(grid.until, Math.ceil(startOf(grid, last) + grid.column_ms / grid.rows));
  return { since, until: Math.max(until, since + 1) };
}

/** The cells between two, column by column: what `spanOf` takes, and nothing else. */
export function covered(
  grid: Subsecond,
  one: Cell,
  other: Cell,
): { column: number; firstRow: number; lastRow: number }[] {
  const [first, last] = startOf(grid, one) <= startOf(grid, other) ? [one, other] : [other, one];
  return Array.from({ length: last.column - first.column + 1 }, (_, step) => {
    const column = first.column + step;
    return {
      column,
      firstRow: column === first.column ? first.row : 0,
      lastRow: column === last.column ? last.row : grid.rows - 1,
    };
  });
}

/** The first and the last requested cell: their columns may reach beyond. */
export function requested(grid: Subsecond): [Cell, Cell] {
  const long = grid.column_ms / grid.rows;
  const [first, last] = [Math.floor((grid.from - grid.since) / long), Math.ceil((grid.until - grid.since) / long) - 1];
  const cell = (at: number): Cell => ({ column: Math.floor(at / grid.rows), row: at % grid.rows });
  const most = grid.columns * grid.rows - 1;
  return [cell(clamp(first, most)), cell(clamp(last, most))];
}

/** How far into a column the labels of its axis are: round, about five of them. */
export function offsetTicks(columnMs: number): number[] {
  const least = columnMs / MOST_TICKS;
  const size = 10 ** Math.floor(Math.log10(least));
  const step = size * ([1, 2, 5, 10].find((each) => each * size >= least) ?? 10);
  return Array.from({ length: Math.floor(columnMs / step) + 1 }, (_, i) => i * step);
}

/** Whether a cell lies in a time that was not recorded. */
export function isMissing(grid: Subsecond, cell: Cell, gaps: readonly [number, number][]): boolean {
  const at = startOf(grid, cell);
  return gaps.some(([since, until]) => at >= since && at < until);
}

/** One step by keyboard: a row is the next piece of time, across the border of a column too. */
export function stepped(grid: Subsecond, from: Cell, columns: number, rows: number): Cell {
  const at = (from.column + columns) * grid.rows + from.row + rows;
  const held = clamp(at, grid.columns * grid.rows - 1);
  return { column: Math.floor(held / grid.rows), row: held % grid.rows };
}

/** The cells with the most samples, the most first. */
export function busiest(grid: Subsecond, most: number): Cell[] {
  const order = Array.from(grid.counts.keys()).sort((a, b) => grid.counts[b] - grid.counts[a] || a - b);
  return order
    .slice(0, most)
    .filter((at) => grid.counts[at] > 0)
    .map((at) => ({ column: Math.floor(at / grid.rows), row: at % grid.rows }));
}

function clamp(value: number, most: number): number {
  return Math.min(Math.max(value, 0), most);
}
