/** The heatmap as text, for screen readers. */
import { announce } from "../a11y";
import { isFiltered } from "../address";
import { formatCores, printCpus } from "../cpulist";
import { range, time } from "../format";
import { filters, state } from "../state";
import type { CoreGrid, Span } from "../types";
import { cellOf, isFlat, valueText, worstCells, type Cell, type Rows } from "./heat";
import type { Box } from "./heatpointer";

/** A cell in words; with a filter, what its share is of. */
export function cellText(cell: Cell, filtered: boolean): string {
  return filtered && cell.measure !== "matching" ? `${valueText(cell)}, of what matches the filter` : valueText(cell);
}

/** Why the heatmap and its table are empty: they have what is measured, not everything that ran. */
export function nothingText(measure: string, filtered: boolean): string {
  if (filtered) return "Nothing in view matches the filter.";
  // In its first minutes a recording has no normal yet, so nothing is claimed about it.
  if (measure === "unusual") return "No core in view was held, or far above its normal.";
  if (measure === "deviation") return "No core in view was far above its normal.";
  if (measure === "stall") return "No core was held for a second in view.";
  if (measure === "busy") return "Nothing ran in view.";
  return measure === "wait" ? "No task waited for a core in view." : `No ${measure} time in view.`;
}

export function describeHeat(grid: CoreGrid | null, rows: Rows, shown: Span | null): string {
  if (!grid || !shown) return "cores by time, loading";
  const { utc } = state.value;
  const [worst] = worstCells(grid, shown, 1);
  const filtered = isFiltered(filters.value);
  let found = isFlat(grid, shown) ? `. ${nothingText(grid.measure, filtered).replace(/\.$/, "")}` : "";
  if (worst?.value) found = `; the worst: core ${worst.cpu}, ${label(worst)} at ${time(worst.since, utc)}`;
  const cpus = printCpus(rows.cpus.flat());
  const when = range(shown.since, shown.until, utc);
  return `cores ${cpus} by time, ${when}${found}. Arrows move, Shift extends, Enter selects`;
}

export function announceBox(box: Box, rows: Rows, grid: CoreGrid | null): void {
  const { utc } = state.peek();
  const cpus = rows.cpus.slice(box.firstRow, box.lastRow + 1).flat();
  const cell = grid && cpus.length === 1 ? cellOf(grid, cpus[0], box.since) : null;
  const value = cell ? `, ${label(cell)}` : "";
  announce(`${formatCores(cpus)}, ${range(box.since, box.until, utc)}${value}`);
}

function label(of: Cell): string {
  return cellText(of, isFiltered(filters.peek()));
}
