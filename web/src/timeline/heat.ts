/** The heatmap's numbers: rows, pooled rows, colours. Pure, so that it can be tested without a browser. */
import { blend, hueOf, rgb, type Rgb, type Theme } from "../theme";
import type { CoreGrid, Span } from "../types";

/** Rows on the screen: one core each, or several where there are more cores than pixels. */
export interface Rows {
  /** The cores of each row, top to bottom. */
  cpus: number[][];
  /** Of one row, in CSS pixels. */
  height: number;
}

const TALLEST = 288;
const THICKEST = 24;

export function rowsFor(cpus: readonly number[], tallest = TALLEST): Rows {
  const each = Math.max(1, Math.ceil(cpus.length / tallest));
  const rows: number[][] = [];
  for (let i = 0; i < cpus.length; i += each) rows.push(cpus.slice(i, i + each));
  const height = Math.min(THICKEST, Math.max(1, Math.floor(tallest / Math.max(1, rows.length))));
  return { cpus: rows, height };
}

const ROUND = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/** The rows that are labelled with their core: round numbers, as many as there is room for. */
export function labelledRows(rows: Rows, apart = 18): { cpu: number; row: number }[] {
  const each = rows.cpus[0]?.length ?? 1;
  const every = ROUND.find((step) => (step / each) * rows.height >= apart) ?? 1000;
  const all = rows.cpus.flatMap((cpus, row) => cpus.map((cpu) => ({ cpu, row })));
  const round = all.filter(({ cpu }) => cpu % every === 0);
  // Cores that were picked by hand are few, and rarely round.
  return round.length > 1 || all.length * rows.height > 8 * apart ? round : all;
}

/** The cell that rules a row at a column: the greatest of its cores. -1 where none was recorded. */
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
        if (known < 0 || values[at] > values[known]) source[begin + cell] = at;
      }
    }
  });
  return { rows, cells, source };
}

const STEPS = 251;

/** Low values stay visible: the ramp rises fast, and a value above zero never has the colour of zero. */
export function strength(value: number, full: number): number {
  return value === 0 ? 0 : 0.1 + 0.9 * Math.pow(Math.min(1, value / full), 0.8);
}

/** The colour of each state and value, as the bytes of a canvas. */
export function colourTable(hues: readonly Hue[], theme: Theme, full: number): Uint32Array {
  const table = new Uint32Array(hues.length * STEPS);
  hues.forEach((hue, state) => {
    for (let value = 0; value < STEPS; value++) table[state * STEPS + value] = pack(shade(hue, value, full, theme));
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

/** Which hue a grid's cells have: by the state that rules them, or one for all where a measure or filter is shown. */
export function huesOf(grid: CoreGrid, theme: Theme): Hue[] {
  if (grid.measure === "busy") {
    const calm = theme.dark ? CALM.dark : CALM.light;
    return grid.states.map((state) => ({ colour: rgb(hueOf(state)), most: state === "user" ? calm : 1 }));
  }
  return [{ colour: grid.measure === "matching" ? theme.ink : rgb(hueOf(grid.measure)), most: 1 }];
}

/** Rows x cells of pixels; what was not recorded is transparent. */
export function heatPixels(grid: CoreGrid, heat: Heat, theme: Theme): Uint32Array {
  const hues = huesOf(grid, theme);
  const table = colourTable(hues, theme, grid.full);
  const byState = grid.measure === "busy";
  const pixels = new Uint32Array(heat.source.length);
  for (let i = 0; i < pixels.length; i++) {
    const at = heat.source[i];
    if (at < 0) continue;
    const state = byState ? Math.min(grid.dominant[at], hues.length - 1) : 0;
    pixels[i] = table[state * STEPS + Math.min(grid.values[at], STEPS - 1)];
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
  /** 0 to 1; null where nothing was recorded. */
  share: number | null;
  state: string | null;
}

export function cellSpan(grid: Span & { cells: number }, cell: number): Span {
  const width = (grid.until - grid.since) / grid.cells;
  return { since: Math.round(grid.since + cell * width), until: Math.round(grid.since + (cell + 1) * width) };
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
  const state = grid.measure === "busy" ? grid.states[grid.dominant[index]] : grid.measure;
  return {
    ...cellSpan(grid, cell),
    cpu: grid.cpus[line],
    share: recorded ? value / grid.full : null,
    state: recorded ? (state ?? null) : null,
  };
}

/**
 * The worst cells within a view, the worst first; of a busy stretch of a core only the peak. What programs do counts
 * less than what the kernel does, as in the drawing.
 */
export function worstCells(grid: CoreGrid, view: Span, most: number): Cell[] {
  const first = Math.max(0, cellIndex(grid, view.since));
  const last = Math.min(grid.cells - 1, cellIndex(grid, view.until - 1));
  const peaks: { line: number; cell: number; value: number }[] = [];
  grid.cpus.forEach((_cpu, line) => {
    let peak: { line: number; cell: number; value: number } | null = null;
    for (let cell = first; cell <= last + 1; cell++) {
      const at = line * grid.cells + cell;
      const recorded = cell <= last && grid.values[at] !== grid.unrecorded;
      const calm = grid.measure === "busy" && grid.states[grid.dominant[at]] === "user";
      const value = recorded ? grid.values[at] * (calm ? CALM.light : 1) : 0;
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

/** Over all cores, cell by cell: the greatest value of each state. -1 where nothing was recorded. */
export function worstByState(grid: CoreGrid): Int16Array[] {
  const states = grid.measure === "busy" ? grid.states.length : 1;
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
