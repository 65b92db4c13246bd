/** Painting the sub-second view: its cells once, what moves over them on a copy. */
import { blend, css, hueOf, rgb, type Theme } from "../theme";
import { hatching } from "../timeline/hatch";
import type { Subsecond } from "../types";
import { countOf, covered, isMissing, requested, scaleOf, stateOf, strengthOf, type Cell } from "./offsets";

const HEIGHT = 300;
/** One sample is never taken for none. */
const FAINTEST = 0.12;

/** A stretch without a recording: from, until. */
export type Gap = [number, number];

/** Every cell, on a canvas of its own. */
export function drawCells(width: number, grid: Subsecond, missing: readonly Gap[], look: Theme): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(HEIGHT * ratio);
  const pen = canvas.getContext("2d");
  if (!pen) return canvas;
  // Cells are placed in pixels of the screen, so that hatches are as fine as the timeline's.
  const [wide, high] = [canvas.width / grid.columns, canvas.height / grid.rows];
  const bottom = (row: number): number => canvas.height - (row + 1) * high;
  const scale = scaleOf(grid);
  const hues = { system: rgb(hueOf("system")), user: rgb(hueOf("user")) };
  const hatches = missing.length > 0 ? hatching(pen, look, ratio) : null;
  for (const { column, firstRow, lastRow } of covered(grid, ...requested(grid))) {
    pen.fillStyle = css(look.ground);
    pen.fillRect(column * wide, bottom(lastRow), wide, (lastRow - firstRow + 1) * high);
    for (let row = firstRow; row <= lastRow; row++) {
      const found = countOf(grid, { column, row });
      if (found > 0) {
        const strength = FAINTEST + (1 - FAINTEST) * strengthOf(found, scale);
        pen.fillStyle = css(blend(look.ground, hues[stateOf(grid, { column, row })], strength));
        pen.fillRect(column * wide, bottom(row), Math.max(wide - 0.3, 0.7), Math.max(high - 0.3, 0.7));
      } else if (hatches && isMissing(grid, { column, row }, missing)) {
        pen.fillStyle = hatches;
        pen.fillRect(column * wide, bottom(row), wide, high);
      }
    }
  }
  return canvas;
}

/** The cells, and over them what is chosen. */
export function drawChosen(
  canvas: HTMLCanvasElement,
  cells: HTMLCanvasElement,
  grid: Subsecond,
  chosen: { from: Cell; to: Cell } | null,
  { accent, ground }: Theme,
): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  canvas.width = cells.width;
  canvas.height = cells.height;
  pen.drawImage(cells, 0, 0);
  if (!chosen) return;
  const [wide, high] = [cells.width / grid.columns, cells.height / grid.rows];
  pen.fillStyle = "rgb(86 180 233 / 0.35)";
  for (const { column, firstRow, lastRow } of covered(grid, chosen.from, chosen.to)) {
    pen.fillRect(column * wide, cells.height - (lastRow + 1) * high, wide, (lastRow - firstRow + 1) * high);
  }
  const bottom = cells.height - (chosen.to.row + 1) * high;
  for (const [colour, thick] of [
    [css(ground), 5],
    [accent, 2],
  ] as const) {
    pen.strokeStyle = colour;
    pen.lineWidth = thick;
    pen.strokeRect(chosen.to.column * wide, bottom, Math.max(wide, 4), Math.max(high, 4));
  }
}
