/** Cores x time, the worst second of each cell: drawn on a canvas, with a table for screen readers. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isFiltered } from "../address";
import { api } from "../api";
import { formatCores } from "../cpulist";
import { Placeholder } from "../resource";
import { useDebounced } from "../debounce";
import { extent, filters, measured, recording, state, view } from "../state";
import { theme } from "../theme";
import type { CoreGrid } from "../types";
import { BaseBox, BoxFrame, SelectionBox } from "./boxes";
import { cellOf, labelledRows, rowsFor, type Rows } from "./heat";
import { drawHeat, pictureOf } from "./heatdraw";
import { heatKeys } from "./heatkeys";
import { listen, type Box } from "./heatpointer";
import { describeHeat } from "./heat-label";
import { Lane } from "./lane";
import { Legend } from "./legend";
import { overviewGrid } from "./overview";
import { usePaint } from "./paint";
import { LEAST_COUNTER_MS, LEAST_SAMPLE_MS, plotWidth, tallest, useCells } from "./plot";
import { CellTooltip, type Pointed } from "./tooltip";
import { WorstCells } from "./worst";

/** Labels and tables are updated when the view stops moving. */
const DEBOUNCE_MS = 250;

export function Heatmap(): JSX.Element | null {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [box, setBox] = useState<Box | null>(null);
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const { cores } = state.value;
  const measure = measured.value;
  const wanted = filters.value;
  const filtered = isFiltered(wanted);
  const read = useCells(
    JSON.stringify(["cores", measure, wanted]),
    (plan, signal) => api.cores({ ...plan, cpus: "", filters: wanted }, plan.cells, measure, signal),
    { least: filtered ? LEAST_SAMPLE_MS : LEAST_COUNTER_MS },
  );
  const grid = read.value;
  const seen = overviewGrid.value;
  const coarse = filtered ? null : seen;
  const most = tallest.value;
  const rows = useMemo(() => rowsFor(shownCpus(grid, seen, cores), most), [grid, seen, cores, most]);
  const paint = usePaint();
  const look = theme.value;
  const fine = useMemo(() => grid && pictureOf(grid, rows, look, "heat"), [grid, rows, look]);
  const rough = useMemo(() => coarse && pictureOf(coarse, rows, look, "heat"), [coarse, rows, look]);
  const painted = useMemo(() => paint.grid && pictureOf(paint.grid, rows, look, "paint"), [paint.grid, rows, look]);
  const [shown, whole, width] = [view.value, extent.value, plotWidth.value];
  const height = rows.cpus.length * rows.height;
  const debounced = useDebounced(shown, DEBOUNCE_MS);
  const label = useMemo(() => describeHeat(grid, rows, debounced), [grid, rows, debounced, state.value.utc]);

  useEffect(() => {
    if (!canvas.current || !shown || !whole) return;
    const pictures = [rough, fine].filter((each) => each !== null);
    drawHeat(canvas.current, { width, height, view: shown, whole, look, pictures, paint: painted });
  }, [shown, width, height, fine, rough, painted, look]);

  // The cell that was under the pointer is elsewhere now.
  useEffect(() => setPointed(null), [shown?.since, shown?.until]);

  const latest = useRef({ grid, rows });
  latest.current = { grid, rows };
  useEffect(() => {
    if (!canvas.current) return undefined;
    return listen({
      canvas: canvas.current,
      grid: () => latest.current.grid,
      rows: () => latest.current.rows,
      onBox: setBox,
      onHover: (place) => setPointed(place && pointedCell(latest.current, place)),
    });
  }, [canvas.current]);

  if (!shown) return null;
  const count = recording.value?.cores ?? rows.cpus.length;
  return (
    <Lane name="cores" title="cores" aside={cores ? formatCores(cores, count) : `${count}`}>
      <RowLabels rows={rows} />
      <canvas
        ref={canvas}
        class="heat"
        style={{ height: `${height}px` }}
        tabIndex={0}
        data-testid="heatmap"
        role="application"
        aria-roledescription="heatmap"
        aria-label={label}
        onKeyDown={(event) => heatKeys(event, latest.current.grid, latest.current.rows, setBox)}
        onBlur={() => setBox(null)}
      />
      <SelectionBox rows={rows} />
      <BaseBox rows={rows} />
      {box && <BoxFrame box={box} rows={rows} kind="drawing" />}
      {pointed && !box && <CellTooltip on={pointed} />}
      {paint.label}
      {(grid === null || read.error !== null || read.slow) && (
        <div class="over-heat">
          <Placeholder of={read} what={filtered ? "every sample that matches the filter" : "the cores"} />
        </div>
      )}
      <div class="under-heat">
        <Legend />
        <WorstCells grid={grid} shown={debounced} />
      </div>
    </Lane>
  );
}

/**
 * The recorded cores; before any are known, or where this was not measured, as many as the node has, so that the
 * layout is stable.
 */
function shownCpus(grid: CoreGrid | null, coarse: CoreGrid | null, cores: number[] | null): number[] {
  const all = [...new Set([...(grid?.cpus ?? []), ...(coarse?.cpus ?? [])])].sort((a, b) => a - b);
  if (all.length === 0) return cores ?? Array.from({ length: recording.peek()?.cores ?? 0 }, (_, cpu) => cpu);
  return cores ? all.filter((cpu) => cores.includes(cpu)) : all;
}

function pointedCell(
  on: { grid: CoreGrid | null; rows: Rows },
  place: { at: number; row: number; x: number; y: number },
): Pointed | null {
  if (!on.grid || on.rows.cpus.length === 0) return null;
  // Of pooled cores the one that is seen: the busiest.
  const cells = on.rows.cpus[place.row].map((cpu) => cellOf(on.grid as CoreGrid, cpu, place.at));
  const cell = cells.reduce((worst, each) => ((each?.share ?? -1) > (worst?.share ?? -1) ? each : worst), cells[0]);
  return cell && { cell, x: place.x, y: place.y };
}

/** Core numbers at the left, as many as there is room for. */
function RowLabels({ rows }: { rows: Rows }): JSX.Element {
  return (
    <div class="row-labels" aria-hidden="true">
      {labelledRows(rows).map(({ cpu, row }) => (
        <span key={cpu} style={{ top: `${row * rows.height + rows.height / 2 - 7}px` }}>
          {cpu}
        </span>
      ))}
    </div>
  );
}
