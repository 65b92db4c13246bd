/** The heatmap by keyboard: a cell that arrows move, Shift and arrows widen, Enter takes. */
import { announce } from "../a11y";
import { extent, moveView, pickingBase, select, undo, view } from "../state";
import type { CoreGrid } from "../types";
import { panned } from "./axis";
import { cellIndex, cellSpan, worstCells, type Rows } from "./heat";
import { takeBox, type Box } from "./heatpointer";
import { announceBox } from "./heat-label";
import { panBy, zoomBy } from "./navigation";

/** Where the cursor stands and where the widening began: rows and cells. */
let cursor: { row: number; cell: number; fromRow: number; fromCell: number; grid: CoreGrid } | null = null;

export function heatKeys(
  event: KeyboardEvent,
  grid: CoreGrid | null,
  rows: Rows,
  show: (box: Box | null) => void,
): void {
  const shown = view.peek();
  if (event.ctrlKey || event.metaKey || event.altKey || !grid || !shown || rows.cpus.length === 0) return;
  const step = ARROWS[event.key];
  if (step) {
    event.preventDefault();
    moveCursor(grid, rows, step, event.shiftKey);
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    if (cursor) takeBox(boxOf(grid, rows), rows);
    else moveCursor(grid, rows, [0, 0], false);
    announce("selected");
    show(null);
    return;
  } else if (event.key === "Escape") {
    event.preventDefault();
    cursor = null;
    show(null);
    if (pickingBase.peek()) pickingBase.value = false;
    else select(null, null);
    return;
  } else {
    passOn(event);
    return;
  }
  const box = boxOf(grid, rows);
  keepInView(box);
  show(box);
  announceBox(box, rows, grid);
}

const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
};

function moveCursor(grid: CoreGrid, rows: Rows, [down, right]: [number, number], widen: boolean): void {
  const shown = view.peek();
  if (!shown) return;
  if (!cursor || cursor.row >= rows.cpus.length) {
    // The first key goes to what matters: the worst cell in view.
    const [worst] = worstCells(grid, shown, 1);
    const row = worst ? rows.cpus.findIndex((cpus) => cpus.includes(worst.cpu)) : 0;
    const cell = cellIndex(grid, worst ? worst.since : (shown.since + shown.until) / 2);
    cursor = { row: Math.max(0, row), cell, fromRow: Math.max(0, row), fromCell: cell, grid };
    return;
  }
  if (cursor.grid !== grid) {
    // Another zoom: the same moment in other cells.
    cursor.cell = cellIndex(grid, cellSpan(cursor.grid, cursor.cell).since + 1);
    cursor.fromCell = cellIndex(grid, cellSpan(cursor.grid, cursor.fromCell).since + 1);
    cursor.grid = grid;
  }
  cursor.row = Math.min(rows.cpus.length - 1, Math.max(0, cursor.row + down));
  cursor.cell = Math.min(grid.cells - 1, Math.max(0, cursor.cell + right));
  if (!widen) [cursor.fromRow, cursor.fromCell] = [cursor.row, cursor.cell];
}

function boxOf(grid: CoreGrid, rows: Rows): Box {
  const at = cursor ?? { row: 0, cell: 0, fromRow: 0, fromCell: 0 };
  const last = rows.cpus.length - 1;
  return {
    since: cellSpan(grid, Math.min(at.cell, at.fromCell)).since,
    until: cellSpan(grid, Math.max(at.cell, at.fromCell)).until,
    firstRow: Math.min(at.row, at.fromRow, last),
    lastRow: Math.min(last, Math.max(at.row, at.fromRow)),
  };
}

function keepInView(box: Box): void {
  const [shown, whole] = [view.peek(), extent.peek()];
  if (!shown || !whole) return;
  if (box.since < shown.since) moveView(panned(shown, whole, box.since - shown.since));
  else if (box.until > shown.until) moveView(panned(shown, whole, box.until - shown.until));
}

/** The page's own keys work here too, but for the arrows. */
function passOn(event: KeyboardEvent): void {
  const keys: Record<string, () => void> = {
    "+": () => zoomBy(0.5),
    "=": () => zoomBy(0.5),
    "-": () => zoomBy(2),
    PageUp: () => panBy(-0.8),
    PageDown: () => panBy(0.8),
    Backspace: () => void undo(),
  };
  const run = keys[event.key];
  if (!run) return;
  event.preventDefault();
  run();
}
