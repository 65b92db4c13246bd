/** Rows of the process table: their order, their change, and their small pictures. Pure. */
import type { Processes, ProcessUse } from "../types";

export const PROCESS_SORTS = ["cpu", "kernel", "change", "name", "processes"] as const;
export type ProcessSort = (typeof PROCESS_SORTS)[number];

/** By how many cores a row's use changed against the time before; null where that was not recorded. */
export function changeOf(row: ProcessUse, of: Processes): number | null {
  if (row.before_seconds === null || of.before_seconds <= 0 || of.seconds <= 0) return null;
  return row.seconds / of.seconds - row.before_seconds / of.before_seconds;
}

/** The part of a row's time that is in kernel code. */
export function kernelShare(row: ProcessUse): number {
  return row.seconds > 0 ? row.kernel_seconds / row.seconds : 0;
}

/** The most first (names from A); `ascending` is the other way round. Equals stay in the order of their CPU time. */
export function sortedRows(of: Processes, by: ProcessSort, ascending: boolean): ProcessUse[] {
  const value: Record<Exclude<ProcessSort, "name">, (row: ProcessUse) => number> = {
    cpu: (row) => row.seconds,
    kernel: kernelShare,
    change: (row) => changeOf(row, of) ?? -Infinity,
    processes: (row) => row.processes,
  };
  const order =
    by === "name"
      ? (a: ProcessUse, b: ProcessUse) => b.comm.localeCompare(a.comm, "en")
      : (a: ProcessUse, b: ProcessUse) => compare(value[by](b), value[by](a));
  return [...of.processes].sort((a, b) => (ascending ? -order(a, b) : order(a, b)));
}

function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

/** A line over the parts of the window in a box of 1 × 1, the greatest at the top; empty without any time. */
export function sparkline(values: readonly number[]): string {
  const most = Math.max(...values);
  if (!(most > 0)) return "";
  const step = 1 / values.length;
  const places = values.map((value, i) => {
    const y = round(1 - value / most);
    return `${i === 0 ? "M" : "L"}${round(i * step)} ${y}H${round((i + 1) * step)}`;
  });
  return places.join("");
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}

/** So strong a core of the strip is drawn, from a trace of use to all of the time. */
export const STRIP_LEVELS = 4;

/** For each level the cores at it as a path, a core being 1 wide; `wholeS` is the length of the window. */
export function coreStrip(perCpu: readonly (readonly [number, number])[], wholeS: number): string[] {
  const paths = Array.from({ length: STRIP_LEVELS }, () => "");
  for (const [cpu, seconds] of perCpu) {
    if (seconds <= 0 || wholeS <= 0) continue;
    const level = Math.min(STRIP_LEVELS - 1, Math.floor((seconds / wholeS) * STRIP_LEVELS));
    paths[level] += `M${cpu} 0h1v1h-1z`;
  }
  return paths;
}
