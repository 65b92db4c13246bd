/** The heatmap as text, for screen readers. */
import { announce } from "../a11y";
import { isFiltered } from "../address";
import { formatCores, printCpus } from "../cpulist";
import { percent, range, time } from "../format";
import { filters, state } from "../state";
import type { CoreGrid, Span } from "../types";
import { cellOf, worstCells, type Rows } from "./heat";
import type { Box } from "./heatpointer";

/** What a cell's share is of. */
export function stateLabel(state: string | null, filtered: boolean): string {
  if (state === "matching") return "matches the filter";
  return filtered ? `${state ?? ""}, of what matches the filter` : (state ?? "");
}

export function describeHeat(grid: CoreGrid | null, rows: Rows, shown: Span | null): string {
  if (!grid || !shown) return "cores by time, loading";
  const { utc } = state.value;
  const [worst] = worstCells(grid, shown, 1);
  const worstText = worst?.share
    ? `; the worst: core ${worst.cpu}, ${percent(worst.share)} ${label(worst.state)} at ${time(worst.since, utc)}`
    : "";
  const cpus = printCpus(rows.cpus.flat());
  const when = range(shown.since, shown.until, utc);
  return `cores ${cpus} by time, ${when}${worstText}. Arrows move, Shift extends, Enter selects`;
}

export function announceBox(box: Box, rows: Rows, grid: CoreGrid | null): void {
  const { utc } = state.peek();
  const cpus = rows.cpus.slice(box.firstRow, box.lastRow + 1).flat();
  const cell = grid && cpus.length === 1 ? cellOf(grid, cpus[0], box.since) : null;
  const value = cell?.share === null ? ", not recorded" : cell ? `, ${percent(cell.share)} ${label(cell.state)}` : "";
  announce(`${formatCores(cpus)}, ${range(box.since, box.until, utc)}${value}`);
}

function label(of: string | null): string {
  return stateLabel(of, isFiltered(filters.peek()));
}
