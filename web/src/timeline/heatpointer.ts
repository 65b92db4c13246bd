/**
 * The pointer on the heatmap, the ruler and the lines: drag selects time x cores, click one cell, Ctrl and wheel zooms,
 * Shift and drag pans.
 */
import { pickingBase, pointedAt, extent, moveView, select, takeBase, view } from "../state";
import type { Span } from "../types";
import { momentAt, panned, SHORTEST_VIEW_MS, within } from "./axis";
import { cellIndex, cellSpan, rowAt, type Rows } from "./heat";
import { zoomBy } from "./navigation";

/** A rectangle of cells: rows and times. */
export interface Box extends Span {
  firstRow: number;
  lastRow: number;
}

export interface Surface {
  element: HTMLElement;
  /** The cells that rectangles consist of. */
  grid: () => (Span & { cells: number }) | null;
  /** Null where there are none: every core is meant. */
  rows: () => Rows | null;
  /** The rectangle that is being drawn; null when it is over. */
  onBox: (box: Box | null) => void;
  onHover: (place: Place | null) => void;
  /** True where it took a click; else the cell is selected. */
  onClick: (at: number, row: number) => boolean;
}

/** A moment on a row, and where the pointer is in the window. */
export interface Place {
  at: number;
  row: number;
  x: number;
  y: number;
}

const CLICK_PX = 4;

/** From one moment to another, in whole cells, at least one. */
export function snapped(from: number, to: number, grid: (Span & { cells: number }) | null): Span {
  const [since, until] = from <= to ? [from, to] : [to, from];
  if (!grid) return { since: Math.floor(since), until: Math.ceil(until) };
  const first = Math.min(Math.max(cellIndex(grid, since), 0), grid.cells - 1);
  const last = Math.min(Math.max(cellIndex(grid, until), first), grid.cells - 1);
  return { since: cellSpan(grid, first).since, until: cellSpan(grid, last).until };
}

/** Null is every core: a rectangle over all rows doesn't have to name them. */
export function cpusOf(box: Box, rows: Rows): number[] | null {
  if (box.firstRow === 0 && box.lastRow === rows.cpus.length - 1 && rows.cpus.length > 1) return null;
  return rows.cpus.slice(box.firstRow, box.lastRow + 1).flat();
}

export function takeBox(box: Box, rows: Rows | null): void {
  if (pickingBase.peek()) takeBase(box);
  else select({ since: box.since, until: box.until }, rows && cpusOf(box, rows));
}

/** Two fingers: the moments under them stay under them. */
class Pinch {
  private readonly fingers = new Map<number, { at: number; x: number }>();

  /** True from the second finger on. */
  down(finger: number, x: number, shown: Span, width: number): boolean {
    this.fingers.set(finger, { at: momentAt(x, shown, width), x });
    return this.fingers.size === 2;
  }

  /** The view that two fingers ask for; null where there are not two, or they lie too close. */
  move(finger: number, x: number, width: number): Span | null {
    const moved = this.fingers.get(finger);
    if (!moved) return null;
    moved.x = x;
    if (this.fingers.size !== 2) return null;
    const [one, two] = [...this.fingers.values()].sort((a, b) => a.at - b.at);
    if (two.x - one.x < 10) return null;
    const perPixel = Math.max(SHORTEST_VIEW_MS / width, (two.at - one.at) / (two.x - one.x));
    const since = one.at - one.x * perPixel;
    return { since, until: since + width * perPixel };
  }

  up(finger: number): void {
    this.fingers.delete(finger);
  }
}

/** Returns what lets go of the element. */
export function listen(surface: Surface): () => void {
  const { element } = surface;
  let start: { x: number; y: number; at: number; pan: boolean; view: Span; box: Box | null } | null = null;

  const place = (event: PointerEvent | WheelEvent): { x: number; y: number; width: number } => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width };
  };
  const rowOf = (y: number): number => {
    const rows = surface.rows();
    return rows ? rowAt(y, rows) : 0;
  };
  const boxTo = (x: number, y: number, width: number): Box | null => {
    const shown = view.peek();
    if (!shown || !start) return null;
    const span = snapped(start.at, momentAt(Math.min(Math.max(x, 0), width), shown, width), surface.grid());
    const [a, b] = [rowOf(start.y), rowOf(y)];
    return { ...span, firstRow: Math.min(a, b), lastRow: Math.max(a, b) };
  };
  const pinch = new Pinch();
  const down = (event: PointerEvent): void => {
    const shown = view.peek();
    if (!shown || event.button === 2) return;
    const { x, y, width } = place(event);
    if (pinch.down(event.pointerId, x, shown, width)) {
      start = null;
      surface.onBox(null);
      return;
    }
    element.setPointerCapture(event.pointerId);
    start = { x, y, at: momentAt(x, shown, width), pan: event.shiftKey || event.button === 1, view: shown, box: null };
    if (start.pan) event.preventDefault();
  };
  const move = (event: PointerEvent): void => {
    const shown = view.peek();
    const { x, y, width } = place(event);
    if (!shown) return;
    const whole = extent.peek();
    const pinched = pinch.move(event.pointerId, x, width);
    if (pinched && whole) {
      moveView(within(pinched, whole));
      return;
    }
    if (!start) {
      const at = momentAt(x, shown, width);
      pointedAt.value = at;
      surface.onHover({ at, row: rowOf(y), x: event.clientX, y: event.clientY });
      return;
    }
    if (start.pan && whole) {
      const length = start.view.until - start.view.since;
      moveView(panned(start.view, whole, ((start.x - x) / width) * length));
    } else if (Math.abs(x - start.x) >= CLICK_PX || Math.abs(y - start.y) >= CLICK_PX) {
      start.box = boxTo(x, y, width);
      surface.onHover(null);
      surface.onBox(start.box);
    }
  };
  const up = (event: PointerEvent): void => {
    const { width } = place(event);
    pinch.up(event.pointerId);
    if (start && !start.pan && event.type === "pointerup") {
      const taken = start.box === null && surface.onClick(start.at, rowOf(start.y));
      const box = start.box ?? boxTo(start.x, start.y, width);
      if (box && !taken) takeBox(box, surface.rows());
    }
    start = null;
    surface.onBox(null);
  };
  const leave = (): void => {
    pointedAt.value = null;
    surface.onHover(null);
  };
  const wheel = (event: WheelEvent): void => {
    const shown = view.peek();
    const whole = extent.peek();
    if (!shown || !whole) return;
    const { x, width } = place(event);
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    const pans = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    // A wheel alone scrolls the page, which the panels are on. Browsers send a pinch on a touchpad as Ctrl and wheel.
    if (!pans && !event.ctrlKey && !event.metaKey && !event.altKey) return;
    event.preventDefault();
    if (pans) {
      moveView(panned(shown, whole, (sideways / width) * (shown.until - shown.since)));
    } else {
      zoomBy(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240))), momentAt(x, shown, width));
    }
  };
  element.addEventListener("pointerdown", down);
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", leave);
  element.addEventListener("wheel", wheel, { passive: false });
  return () => {
    element.removeEventListener("pointerdown", down);
    element.removeEventListener("pointermove", move);
    element.removeEventListener("pointerup", up);
    element.removeEventListener("pointercancel", up);
    element.removeEventListener("pointerleave", leave);
    element.removeEventListener("wheel", wheel);
  };
}
