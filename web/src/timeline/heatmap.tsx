/** Cores x time, the worst second of each cell: drawn on a canvas, with a table for screen readers. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isFiltered } from "../address";
import { api } from "../api";
import { formatCores } from "../cpulist";
import { Placeholder } from "../resource";
import { useDebounced } from "../debounce";
import { change, extent, filters, measured, recording, state, view } from "../state";
import { theme } from "../theme";
import type { CoreGrid } from "../types";
import { BaseBox, BoxFrame, SelectionBox } from "./boxes";
import { heightOf, labelledRows, rowsFor, sortedByWorst, worstOf, type Rows } from "./heat";
import { drawHeat, pictureOf } from "./heatdraw";
import { heatKeys } from "./heatkeys";
import { listen, type Box } from "./heatpointer";
import { describeHeat } from "./heat-label";
import { Lane } from "./lane";
import { Legend } from "./legend";
import { overviewGrid } from "./overview";
import { usePaint } from "./paint";
import { toggleOrder, togglePinned, toggleTall } from "./navigation";
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
  const { pinned, order, tall } = state.value;
  const [shown, whole, width] = [view.value, extent.value, plotWidth.value];
  const debounced = useDebounced(shown, DEBOUNCE_MS);
  const rows = useMemo(() => {
    const known = shownCpus(grid, seen, cores);
    // Rows move when the view has come to rest, not under the pointer.
    const ordered = order === "worst" && grid && debounced ? sortedByWorst(known, grid, debounced) : known;
    return rowsFor(ordered, { tallest: most, pinned: pinned ?? [], tall });
  }, [grid, seen, cores, most, pinned, order, tall, order === "worst" ? debounced : null]);
  const paint = usePaint();
  const look = theme.value;
  const fine = useMemo(() => grid && pictureOf(grid, rows, look, "heat"), [grid, rows, look]);
  const rough = useMemo(() => coarse && pictureOf(coarse, rows, look, "heat"), [coarse, rows, look]);
  const painted = useMemo(() => paint.grid && pictureOf(paint.grid, rows, look, "paint"), [paint.grid, rows, look]);
  const height = heightOf(rows);
  const label = useMemo(() => describeHeat(grid, rows, debounced), [grid, rows, debounced, state.value.utc]);

  useEffect(() => {
    if (!canvas.current || !shown || !whole) return;
    const pictures = [rough, fine].filter((each) => each !== null);
    drawHeat(canvas.current, { width, rows, view: shown, whole, look, pictures, paint: painted });
  }, [shown, width, rows, fine, rough, painted, look]);

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
      {rows.cpus.length === 0 && (
        <p class="lane-empty" data-testid="no-cores">
          This recording has no {cores ? formatCores(cores) : "cores"}.{" "}
          {cores && (
            <button type="button" class="link" onClick={() => change({ cores: null })}>
              show every core
            </button>
          )}
        </p>
      )}
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
        <RowTools />
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
  // Of pooled cores the one that is seen: the worst.
  const cell = worstOf(on.grid, on.rows.cpus[place.row], place.at);
  return cell && { cell, x: place.x, y: place.y };
}

/** Core numbers at the left, as many as there is room for; a click pins a core. The key is `t`. */
function RowLabels({ rows }: { rows: Rows }): JSX.Element {
  return (
    <div class="row-labels" aria-hidden="true">
      {labelledRows(rows).map(({ cpu, row }) => (
        <span
          key={cpu}
          class={row < rows.pinned ? "pinned" : ""}
          style={{ top: `${(rows.tops[row] + rows.tops[row + 1]) / 2 - 7}px` }}
          title={row < rows.pinned ? `unpin core ${cpu}` : `pin core ${cpu} to the top`}
          onClick={() => togglePinned([cpu])}
        >
          {cpu}
        </span>
      ))}
    </div>
  );
}

/** How the rows are laid out: their order, their height, and the pinned ones. */
function RowTools(): JSX.Element {
  const { order, tall, pinned, cpus } = state.value;
  const many = (recording.value?.cores ?? 0) > 1;
  if (!many) return <></>;
  return (
    <div class="row-tools" role="group" aria-label="rows of the heatmap">
      <button
        type="button"
        aria-pressed={order === "worst"}
        title="the worst core in view first (s)"
        onClick={toggleOrder}
      >
        worst first
      </button>
      <button type="button" aria-pressed={tall} title="rows that are high enough to be read (r)" onClick={toggleTall}>
        high rows
      </button>
      {cpus !== null && (
        <button
          type="button"
          aria-pressed={cpus.every((cpu) => pinned?.includes(cpu))}
          title="keep the selected cores at the top, in high rows (t)"
          onClick={() => togglePinned(cpus)}
        >
          pin {formatCores(cpus)}
        </button>
      )}
      {pinned !== null && (
        <button type="button" class="quiet" onClick={() => change({ pinned: null }, "replace")}>
          unpin {formatCores(pinned)}
        </button>
      )}
    </div>
  );
}
