/** The heatmap's numbers: rows, pooled rows, colours. Pure, so that it can be tested without a browser. */
import { duration, percent, plural } from "../format";
import { blend, hueOf, rgb, type Rgb, type Theme } from "../theme";
import type { CoreGrid, Span } from "../types";

/** Rows on the screen: one core each, or several where there are more cores than pixels. */
export interface Rows {
  /** The cores of each row, top to bottom. */
  cpus: number[][];
  /** Where each row begins, and where the last one ends, in CSS pixels. */
  tops: number[];
  /** Of a row that is not pinned, in CSS pixels. */
  height: number;
  /** How many rows at the top are pinned: higher, and one core each. */
  pinned: number;
}

const TALLEST = 288;
const THICKEST = 24;
const PINNED_PX = 18;
const TALL_PX = 14;

export interface RowOptions {
  tallest?: number;
  /** Cores that stand at the top, in rows of a height to be read. */
  pinned?: readonly number[];
  /** Every core has such a row. */
  tall?: boolean;
}

/** Rows of cores in the order in which they are given. */
export function rowsFor(cpus: readonly number[], options: RowOptions = {}): Rows {
  const { tallest = TALLEST, pinned = [], tall = false } = options;
  const top = pinned.filter((cpu) => cpus.includes(cpu));
  const others = cpus.filter((cpu) => !top.includes(cpu));
  const each = tall ? 1 : Math.max(1, Math.ceil(others.length / tallest));
  const rows: number[][] = top.map((cpu) => [cpu]);
  for (let i = 0; i < others.length; i += each) rows.push(others.slice(i, i + each));
  const fitting = Math.floor(tallest / Math.max(1, rows.length - top.length));
  const height = Math.min(THICKEST, Math.max(tall ? TALL_PX : 1, fitting));
  const tops = [0];
  rows.forEach((_, row) => tops.push(tops[row] + (row < top.length ? Math.max(PINNED_PX, height) : height)));
  return { cpus: rows, tops, height, pinned: top.length };
}

/** Of all rows, in CSS pixels. */
export function heightOf(rows: Rows): number {
  return rows.tops[rows.cpus.length] ?? 0;
}

export function rowAt(y: number, rows: Rows): number {
  const below = rows.tops.findIndex((top, row) => row > 0 && top > y);
  return Math.max(0, (below < 0 ? rows.cpus.length : below) - 1);
}

/** Cores by how bad their worst cell in view is, the worst first; those that are as bad keep their order. */
export function sortedByWorst(cpus: readonly number[], grid: CoreGrid, view: Span): number[] {
  const [first, last] = cellsIn(grid, view);
  const lines = new Map(grid.cpus.map((cpu, line) => [cpu, line]));
  const worst = new Map(
    cpus.map((cpu): [number, number] => {
      const line = lines.get(cpu);
      let most = -1;
      for (let cell = first; line !== undefined && cell <= last; cell++) {
        most = Math.max(most, rankOf(grid, line * grid.cells + cell));
      }
      return [cpu, most];
    }),
  );
  return [...cpus].sort((a, b) => (worst.get(b) ?? -1) - (worst.get(a) ?? -1));
}

/** How bad a cell is: its value, by the weight that the server gives its state; -1 where nothing was recorded. */
function rankOf(grid: CoreGrid, at: number): number {
  return grid.values[at] === grid.unrecorded ? -1 : grid.values[at] * (grid.weights[grid.dominant[at]] ?? 1);
}

const ROUND = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/** The rows that are labelled with their core: round numbers, as many as there is room for. */
export function labelledRows(rows: Rows, apart = 18): { cpu: number; row: number }[] {
  const pinned = rows.cpus.slice(0, rows.pinned).map(([cpu], row) => ({ cpu, row }));
  const all = rows.cpus.flatMap((cpus, row) => (row < rows.pinned ? [] : cpus.map((cpu) => ({ cpu, row }))));
  if (rows.height >= TALL_PX || !ascending(all.map(({ cpu }) => cpu))) return [...pinned, ...spaced(all, rows, apart)];
  const each = rows.cpus.at(-1)?.length ?? 1;
  const every = ROUND.find((step) => (step / each) * rows.height >= apart) ?? 1000;
  const round = all.filter(({ cpu }) => cpu % every === 0);
  // Cores that were picked by hand are few, and rarely round.
  return [...pinned, ...(round.length > 1 || all.length * rows.height > 8 * apart ? round : all)];
}

function ascending(cpus: readonly number[]): boolean {
  return cpus.every((cpu, i) => i === 0 || cpu > cpus[i - 1]);
}

/** Sorted or high rows: the first, and each that is far enough from the one before. */
function spaced<Label extends { row: number }>(all: Label[], rows: Rows, apart: number): Label[] {
  let free = -Infinity;
  return all.filter(({ row }) => {
    if (rows.tops[row] < free) return false;
    free = rows.tops[row] + Math.min(apart, TALL_PX);
    return true;
  });
}

/** The cell that rules a row at a column: the worst of its cores. -1 where none was recorded. */
export interface Heat {
  rows: Rows;
  cells: number;
  /** Rows x cells: an index into the grid's values, or -1. */
  source: Int32Array;
}

export function pooledHeat(grid: CoreGrid, rows: Rows): Heat {
  const lines = new Map(grid.cpus.map((cpu, line) => [cpu, line]));
  const { cells, values, unrecorded } = grid;
  const source = new Int32Array(rows.cpus.length * cells).fill(-1);
  rows.cpus.forEach((cpus, row) => {
    const begin = row * cells;
    for (const cpu of cpus) {
      const line = lines.get(cpu);
      if (line === undefined) continue;
      for (let cell = 0, at = line * cells; cell < cells; cell++, at++) {
        if (values[at] === unrecorded) continue;
        const known = source[begin + cell];
        if (known < 0 || rankOf(grid, at) > rankOf(grid, known)) source[begin + cell] = at;
      }
    }
  });
  return { rows, cells, source };
}

/** Low values stay visible: the ramp rises fast, and a value above zero never has the colour of zero. */
export function strength(value: number, full: number): number {
  return value === 0 ? 0 : 0.1 + 0.9 * Math.pow(Math.min(1, value / full), 0.8);
}

/** The colour of each state and value, as the bytes of a canvas. */
export function colourTable(hues: readonly Hue[], theme: Theme, full: number): Uint32Array {
  const steps = full + 1;
  const table = new Uint32Array(hues.length * steps);
  hues.forEach((hue, state) => {
    for (let value = 0; value < steps; value++) table[state * steps + value] = pack(shade(hue, value, full, theme));
  });
  return table;
}

export function shade(hue: Hue, value: number, full: number, theme: Theme): Rgb {
  return blend(theme.ground, hue.colour, hue.most * strength(value, full));
}

function pack([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export interface Hue {
  colour: Rgb;
  /** How strong it gets, of 1. */
  most: number;
}

/** User time is what cores are for: it is drawn fainter than the states of the kernel. */
const CALM = { light: 0.55, dark: 0.38 };

/** The measures whose cells have one of several states; the others have one, or (a filter) none. */
const BY_STATE = ["busy", "unusual", "stall", "deviation"];

/** Which hue a grid's cells have: that of the state that has the value, or one for all. */
export function huesOf(grid: CoreGrid, theme: Theme): Hue[] {
  if (BY_STATE.includes(grid.measure)) {
    const calm = theme.dark ? CALM.dark : CALM.light;
    return grid.states.map((state) => ({ colour: rgb(hueOf(state)), most: state === "user" ? calm : 1 }));
  }
  return [{ colour: grid.measure === "matching" ? theme.ink : rgb(hueOf(grid.measure)), most: 1 }];
}

/** Rows x cells of pixels; what was not recorded is transparent. */
export function heatPixels(grid: CoreGrid, heat: Heat, theme: Theme): Uint32Array {
  const hues = huesOf(grid, theme);
  const table = colourTable(hues, theme, grid.full);
  const steps = grid.full + 1;
  const byState = BY_STATE.includes(grid.measure);
  const pixels = new Uint32Array(heat.source.length);
  for (let i = 0; i < pixels.length; i++) {
    const at = heat.source[i];
    if (at < 0) continue;
    const state = byState ? Math.min(grid.dominant[at], hues.length - 1) : 0;
    pixels[i] = table[state * steps + Math.min(grid.values[at], steps - 1)];
  }
  return pixels;
}

/** The same for a frame that is painted over the heatmap: ink, the stronger the larger its share. */
export function paintPixels(grid: CoreGrid, heat: Heat, theme: Theme): Uint32Array {
  const [red, green, blue] = theme.ink;
  const pixels = new Uint32Array(heat.source.length);
  for (let i = 0; i < pixels.length; i++) {
    const at = heat.source[i];
    const value = at < 0 ? 0 : grid.values[at];
    if (value === 0) continue;
    const alpha = Math.round(255 * (0.35 + 0.65 * Math.min(1, value / grid.full)));
    pixels[i] = ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }
  return pixels;
}

export interface Cell extends Span {
  cpu: number;
  measure: string;
  /** As the server sent it; null where nothing was recorded. */
  value: number | null;
  /** The state that has the value. */
  state: string | null;
}

/** What a value of the measures of what is unusual says; `decode_unusual` of the server. */
const STALL_UNIT_MS = 10;
const UNUSUAL_FLOOR = 500;
/** A longer stall has the same value. */
const LONGEST_STALL_MS = 40_000;

export function decodeUnusual(measure: string, value: number): { stallMs: number; deviation: number } {
  if (measure === "stall") return { stallMs: value * STALL_UNIT_MS, deviation: 0 };
  if (measure === "deviation") return { stallMs: 0, deviation: value };
  if (value < UNUSUAL_FLOOR) return { stallMs: 0, deviation: value * 2 };
  return { stallMs: (value - UNUSUAL_FLOOR) * STALL_UNIT_MS * 2, deviation: 0 };
}

/** A cell in words: `98 % system`, `held for 6 s by system`, `62 points above its normal, mostly system`. */
export function valueText({ measure, value, state }: Pick<Cell, "measure" | "value" | "state">): string {
  if (value === null) return "not recorded";
  if (measure === "matching") return `${percent(value / 1000)} matches the filter`;
  if (state === "wait" && measure === "wait") return `tasks waited ${value} ms/s`;
  if (measure === "busy" || !BY_STATE.includes(measure)) return `${percent(value / 1000)} ${state ?? ""}`;
  const { stallMs, deviation } = decodeUnusual(measure, value);
  if (stallMs === 0) {
    // A difference of two shares.
    const points = plural(Math.round(deviation / 10), "point");
    return `${deviation === 0 ? "as it normally is" : `${points} above its normal`}, mostly ${state ?? ""}`;
  }
  const least = stallMs >= LONGEST_STALL_MS ? "at least " : "";
  return `held for ${least}${duration(stallMs)} by ${state === "wait" ? "waiting tasks" : (state ?? "")}`;
}

/** Cells of one length, with edges at its multiples, that cover a time. */
export function cellsOf(span: Span, lengthMs: number): Span & { cells: number } {
  const since = Math.floor(span.since / lengthMs) * lengthMs;
  const until = Math.ceil(span.until / lengthMs) * lengthMs;
  return { since, until, cells: Math.max(1, (until - since) / lengthMs) };
}

/** Whole milliseconds; the server counts a second in the cell in which it begins, so both ends are rounded up. */
export function cellSpan(grid: Span & { cells: number }, cell: number): Span {
  const width = (grid.until - grid.since) / grid.cells;
  const edge = (at: number): number => Math.ceil(grid.since + at * width - 1e-6) + 0;
  return { since: edge(cell), until: edge(cell + 1) };
}

function cellsIn(grid: CoreGrid, view: Span): [number, number] {
  return [
    Math.max(0, cellIndex(grid, view.since)),
    Math.min(grid.cells - 1, cellIndex(grid, view.until - 1)),
  ];
}

export function cellIndex(grid: Span & { cells: number }, at: number): number {
  return Math.floor(((at - grid.since) / (grid.until - grid.since)) * grid.cells);
}

/** The cell of a core at a moment; null outside of the grid. */
export function cellOf(grid: CoreGrid, cpu: number, at: number): Cell | null {
  const line = grid.cpus.indexOf(cpu);
  const cell = cellIndex(grid, at);
  if (line < 0 || cell < 0 || cell >= grid.cells) return null;
  return describe(grid, line, cell);
}

function describe(grid: CoreGrid, line: number, cell: number): Cell {
  const index = line * grid.cells + cell;
  const value = grid.values[index];
  const recorded = value !== grid.unrecorded;
  const state = BY_STATE.includes(grid.measure) ? grid.states[grid.dominant[index]] : grid.measure;
  return {
    ...cellSpan(grid, cell),
    cpu: grid.cpus[line],
    measure: grid.measure,
    value: recorded ? value : null,
    state: recorded ? (state ?? null) : null,
  };
}

/** Of some cores at a moment the cell that is drawn: the worst. */
export function worstOf(grid: CoreGrid, cpus: readonly number[], at: number): Cell | null {
  const cell = cellIndex(grid, at);
  if (cell < 0 || cell >= grid.cells) return null;
  const lines = cpus.map((cpu) => grid.cpus.indexOf(cpu)).filter((line) => line >= 0);
  if (lines.length === 0) return null;
  const rank = (line: number): number => rankOf(grid, line * grid.cells + cell);
  return describe(grid, lines.reduce((worst, line) => (rank(line) > rank(worst) ? line : worst)), cell);
}

/**
 * The worst cells within a view, the worst first; of a busy stretch of a core only the peak. The server ranks cells
 * alike (`worst_cell`), with the same weights.
 */
export function worstCells(grid: CoreGrid, view: Span, most: number): Cell[] {
  const [first, last] = cellsIn(grid, view);
  const peaks: { line: number; cell: number; value: number }[] = [];
  grid.cpus.forEach((_cpu, line) => {
    let peak: { line: number; cell: number; value: number } | null = null;
    for (let cell = first; cell <= last + 1; cell++) {
      const value = cell <= last ? Math.max(0, rankOf(grid, line * grid.cells + cell)) : 0;
      const busy = value > 0;
      if (busy && (!peak || value > peak.value)) peak = { line, cell, value };
      if (peak && (!busy || value < peak.value / 2)) {
        peaks.push(peak);
        peak = null;
      }
    }
  });
  peaks.sort((a, b) => b.value - a.value || a.cell - b.cell);
  return peaks.slice(0, most).map(({ line, cell }) => describe(grid, line, cell));
}

/** Whether a view has recorded cells, and the value of each of them is 0. */
export function isFlat(grid: CoreGrid, view: Span): boolean {
  const [first, last] = cellsIn(grid, view);
  let recorded = false;
  for (let line = 0; line < grid.cpus.length; line++) {
    for (let cell = first; cell <= last; cell++) {
      const value = grid.values[line * grid.cells + cell];
      if (value === grid.unrecorded) continue;
      if (value > 0) return false;
      recorded = true;
    }
  }
  return recorded;
}

/** Over all cores, cell by cell: the greatest value of each state. -1 where nothing was recorded. */
export function worstByState(grid: CoreGrid): Int16Array[] {
  const states = BY_STATE.includes(grid.measure) ? grid.states.length : 1;
  const worst = Array.from({ length: states }, () => new Int16Array(grid.cells).fill(-1));
  for (let line = 0; line < grid.cpus.length; line++) {
    for (let cell = 0; cell < grid.cells; cell++) {
      const at = line * grid.cells + cell;
      if (grid.values[at] === grid.unrecorded) continue;
      const state = states === 1 ? 0 : Math.min(grid.dominant[at], states - 1);
      if (grid.values[at] > worst[state][cell]) worst[state][cell] = grid.values[at];
    }
  }
  return worst;
}
