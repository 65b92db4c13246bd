/** The heatmap as a table: its worst cells, each a click away. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { TableInstead } from "../a11y";
import { isFiltered } from "../address";
import { duration, moment } from "../format";
import { filters, measured, select, state } from "../state";
import type { CoreGrid, Span } from "../types";
import { worstCells, type Cell } from "./heat";
import { cellText, nothingText } from "./heat-label";

const MOST = 20;

export function WorstCells({ grid, shown }: { grid: CoreGrid | null; shown: Span | null }): JSX.Element {
  const cells = useMemo(() => (grid && shown ? worstCells(grid, shown, MOST) : []), [grid, shown]);
  const { utc } = state.value;
  return (
    <TableInstead<Cell>
      summary="worst moments in view, as a table"
      caption="the worst cells of the heatmap, the worst first"
      empty={nothingText(measured.value, isFiltered(filters.value))}
      rows={cells}
      keyOf={(cell) => `${cell.cpu} ${cell.since}`}
      columns={[
        {
          title: "time",
          cell: (cell) => (
            <button type="button" class="link" onClick={() => select(cell, [cell.cpu])}>
              {moment(cell.since, utc)}
            </button>
          ),
        },
        { title: "length", numeric: true, cell: (cell) => duration(cell.until - cell.since) },
        { title: "core", numeric: true, cell: (cell) => cell.cpu },
        { title: "what", cell: (cell) => cellText(cell, isFiltered(filters.value)) },
      ]}
    />
  );
}
