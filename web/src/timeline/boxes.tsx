/** Rectangles over the heatmap: what is selected, and what is being drawn. */
import type { JSX } from "preact";
import { state, view } from "../state";
import { position } from "./axis";
import type { Rows } from "./heat";
import type { Box } from "./heatpointer";
import { plotWidth } from "./plot";

/** The selection, as far as it is in view. */
export function SelectionBox({ rows }: { rows: Rows }): JSX.Element[] | null {
  const { s0, s1, cpus } = state.value;
  if (s0 === null || s1 === null) return null;
  return runsOf(rows, cpus).map(([firstRow, lastRow]) => (
    <BoxFrame key={firstRow} box={{ since: s0, until: s1, firstRow, lastRow }} rows={rows} kind="selected" />
  ));
}

/** The time that is compared with, while the difference is looked at. */
export function BaseBox({ rows }: { rows: Rows }): JSX.Element | null {
  const { tab, baseline, b0, b1 } = state.value;
  if (tab !== "difference" || baseline !== "window" || b0 === null || b1 === null) return null;
  const box = { since: b0, until: b1, firstRow: 0, lastRow: rows.cpus.length - 1 };
  return <BoxFrame box={box} rows={rows} kind="base" />;
}

/** Rows that lie side by side and hold selected cores. */
export function runsOf(rows: Rows, cpus: number[] | null): [number, number][] {
  if (cpus === null) return [[0, rows.cpus.length - 1]];
  const chosen = new Set(cpus);
  const runs: [number, number][] = [];
  rows.cpus.forEach((each, row) => {
    if (!each.some((cpu) => chosen.has(cpu))) return;
    const last = runs.at(-1);
    if (last && last[1] === row - 1) last[1] = row;
    else runs.push([row, row]);
  });
  return runs;
}

export function BoxFrame({ box, rows, kind }: { box: Box; rows: Rows; kind: string }): JSX.Element | null {
  const [shown, width] = [view.value, plotWidth.value];
  if (!shown || box.until <= shown.since || box.since >= shown.until) return null;
  const left = Math.max(-3, position(box.since, shown, width));
  const right = Math.min(width + 3, position(box.until, shown, width));
  const place = {
    left: `${left}px`,
    width: `${Math.max(3, right - left)}px`,
    top: `${rows.tops[box.firstRow]}px`,
    height: `${rows.tops[box.lastRow + 1] - rows.tops[box.firstRow]}px`,
  };
  return <div class={`box ${kind}`} style={place} data-testid={kind} />;
}
