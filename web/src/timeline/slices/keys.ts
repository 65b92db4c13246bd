/** Slices by keyboard: arrows go from slice to slice and from core to core, Shift extends, Enter selects. */
import { announce } from "../../a11y";
import { range } from "../../format";
import { change, extent, moveView, select, state, view } from "../../state";
import type { Slices, Span } from "../../types";
import { panned } from "../axis";
import type { Rows } from "../heat";
import { takeBox, type Box } from "../heatpointer";
import { describeSlice, neighbour, runnersIn, samplesOf, sliceAt, sliceText, type Slice } from "./model";

/** A row and a moment on it, and where Shift began to extend. */
interface Cursor {
  row: number;
  at: number;
  from: { row: number; at: number };
}

let cursor: Cursor | null = null;

/** False where the key is not one of slices. */
export function sliceKeys(event: KeyboardEvent, of: Slices, rows: Rows, show: (box: Box | null) => void): boolean {
  const shown = view.peek();
  if (event.ctrlKey || event.metaKey || event.altKey || !shown || rows.cpus.length === 0) return false;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    if (!cursor) return true;
    const index = sliceAt(of, cpuAt(rows, cursor), cursor.at);
    const single = cursor.from.row === cursor.row && cursor.from.at === cursor.at;
    if (single && index >= 0) selectSlice(describeSlice(of, index));
    else takeBox(boxOf(of, rows, cursor), rows);
    show(null);
    return true;
  }
  if (event.key === "Escape") {
    cursor = null;
    const { s0, marked } = state.peek();
    if (s0 !== null || marked === null) return false;
    event.preventDefault();
    change({ marked: null }, "replace");
    return true;
  }
  if (!(event.key in ARROWS)) return false;
  event.preventDefault();
  moved(of, rows, shown, ARROWS[event.key], event.shiftKey);
  if (!cursor) return true;
  const box = boxOf(of, rows, cursor);
  keepInView(box);
  show(box);
  const index = sliceAt(of, cpuAt(rows, cursor), cursor.at);
  const what = index < 0 ? "not sampled" : sliceText(describeSlice(of, index));
  announce(`core ${cpuAt(rows, cursor)}, ${range(box.since, box.until, state.peek().utc)}, ${what}`);
  return true;
}

/** Selects the time and core of a slice, and highlights its process. */
export function selectSlice(slice: Slice): void {
  select(samplesOf(slice), [slice.cpu]);
  if (slice.pid !== null) change({ marked: slice.pid }, "replace");
  announce(`selected ${sliceText(slice)}`);
}

const ARROWS: Record<string, [number, 1 | -1 | 0]> = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
};

function moved(of: Slices, rows: Rows, shown: Span, [down, right]: [number, 1 | -1 | 0], extend: boolean): void {
  if (!cursor || cursor.row >= rows.cpus.length) {
    // The first key goes to the longest stretch of the process that ran most.
    const [most] = runnersIn(of, shown);
    const row = most ? rows.cpus.findIndex((cpus) => cpus.includes(most.longest.cpu)) : 0;
    const at = most ? Math.max(most.longest.since, shown.since) + 1 : (shown.since + shown.until) / 2;
    cursor = { row: Math.max(0, row), at, from: { row: Math.max(0, row), at } };
    return;
  }
  cursor.row = Math.min(rows.cpus.length - 1, Math.max(0, cursor.row + down));
  if (right !== 0) {
    const next = neighbour(of, cpuAt(rows, cursor), cursor.at, right);
    if (next >= 0) cursor.at = of.since + (of.start[next] + of.length[next] / 2) / 1000;
  }
  if (!extend) cursor.from = { row: cursor.row, at: cursor.at };
}

function cpuAt(rows: Rows, at: { row: number }): number {
  return rows.cpus[Math.min(at.row, rows.cpus.length - 1)][0];
}

function boxOf(of: Slices, rows: Rows, at: Cursor): Box {
  const ends = [at, at.from].map((end): Span => {
    const index = sliceAt(of, cpuAt(rows, end), end.at);
    return index < 0 ? { since: Math.floor(end.at), until: Math.floor(end.at) + 10 } : describeSlice(of, index);
  });
  return {
    since: Math.min(ends[0].since, ends[1].since),
    until: Math.max(ends[0].until, ends[1].until),
    firstRow: Math.min(at.row, at.from.row),
    lastRow: Math.min(rows.cpus.length - 1, Math.max(at.row, at.from.row)),
  };
}

function keepInView(box: Box): void {
  const [shown, whole] = [view.peek(), extent.peek()];
  if (!shown || !whole) return;
  if (box.since < shown.since) moveView(panned(shown, whole, box.since - shown.since));
  else if (box.until > shown.until) moveView(panned(shown, whole, box.until - shown.until));
}
