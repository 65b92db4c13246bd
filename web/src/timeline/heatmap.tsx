/**
 * Cores x time, the worst second of each cell, or (a short view) who ran: drawn on a canvas, with a table for screen
 * readers.
 */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { isFiltered, type Measure } from "../address";
import { api } from "../api";
import { formatCores } from "../cpulist";
import { Placeholder } from "../resource";
import { useDebounced } from "../debounce";
import { change, extent, filters, measured, pickingBase, recording, state, view } from "../state";
import { theme } from "../theme";
import type { CoreGrid, Slices } from "../types";
import { BaseBox, BoxFrame, SelectionBox } from "./boxes";
import { cellsOf, heightOf, isFlat, labelledRows, rowsFor, sortedByWorst, worstOf, type Rows } from "./heat";
import { drawHeat, pictureOf } from "./heatdraw";
import { heatKeys } from "./heatkeys";
import { listen, type Box, type Place } from "./heatpointer";
import { describeHeat, nothingText } from "./heat-label";
import { Lane } from "./lane";
import { Legend } from "./legend";
import { overviewGrid } from "./overview";
import { usePaint } from "./paint";
import { toggleOrder, togglePinned, toggleTall } from "./navigation";
import { LEAST_COUNTER_MS, LEAST_SAMPLE_MS, plotWidth, tallest, useCells } from "./plot";
import { drawSlices } from "./slices/draw";
import { selectSlice, sliceKeys } from "./slices/keys";
import { describeSlice, FINE_MS, isShort, NOT_SAMPLED, sliceAt } from "./slices/model";
import { SliceTooltip, type PointedSlice } from "./slices/tooltip";
import { describeSlices, MarkedProcess, SliceLegend, SliceTable, toggleSlices, useSlices } from "./slices/view";
import { CellTooltip, type Pointed } from "./tooltip";
import { WorstCells } from "./worst";

/** Labels and tables are updated when the view stops moving. */
const DEBOUNCE_MS = 250;

export function Heatmap(): JSX.Element | null {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [box, setBox] = useState<Box | null>(null);
  const [pointed, setPointed] = useState<Pointed | PointedSlice | null>(null);
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
  const ran = useSlices();
  const slices = ran.value;
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
  const label = useMemo(
    () => (slices ? describeSlices(slices, rows.cpus.flat(), debounced) : describeHeat(grid, rows, debounced)),
    [grid, slices, rows, debounced, state.value.utc],
  );
  const flat = useMemo(() => !slices && grid && debounced && isFlat(grid, debounced), [grid, slices, debounced]);
  const { marked } = state.value;

  // Not a frame later: what arrived is drawn with the labels around it.
  useLayoutEffect(() => {
    if (!canvas.current || !shown || !whole) return;
    const pictures = [rough, fine].filter((each) => each !== null);
    // The heatmap stays below until slices are there, and around them while the view moves.
    drawHeat(canvas.current, { width, rows, view: shown, whole, look, pictures, paint: painted });
    if (slices && !painted) drawSlices(canvas.current, { rows, view: shown, look, slices, marked });
    // For tests and benchmarks: what the rows show.
    canvas.current.dataset.slices = slices ? `${slices.since} ${slices.until}` : "";
  }, [shown, width, rows, fine, rough, painted, look, slices, marked]);

  // The cell that was under the pointer is elsewhere now.
  useEffect(() => setPointed(null), [shown?.since, shown?.until]);

  const latest = useRef({ grid, rows, slices });
  latest.current = { grid, rows, slices };
  useEffect(() => {
    if (!canvas.current) return undefined;
    return listen({
      element: canvas.current,
      grid: () => (latest.current.slices ? cellsOf(latest.current.slices, FINE_MS) : latest.current.grid),
      rows: () => latest.current.rows,
      onBox: setBox,
      onHover: (place) => setPointed(place && pointedPart(latest.current, place)),
      onClick: (at, row) => clickSlice(latest.current, at, row),
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
        aria-roledescription={slices ? "timeline of slices" : "heatmap"}
        aria-label={label}
        onKeyDown={(event) => {
          const { grid: cells, rows: now, slices: who } = latest.current;
          if (!who || !sliceKeys(event, who, now, setBox)) heatKeys(event, cells, now, setBox);
        }}
        onBlur={() => setBox(null)}
      />
      <SelectionBox rows={rows} />
      <BaseBox rows={rows} />
      {box && <BoxFrame box={box} rows={rows} kind="drawing" />}
      {pointed && !box && ("cell" in pointed ? <CellTooltip on={pointed} /> : <SliceTooltip on={pointed} />)}
      {paint.label}
      {flat && <FlatHeat measure={measure} filtered={filtered} />}
      {(ran.error !== null || ran.slow) && (
        <div class="over-heat">
          <Placeholder of={ran} what="single samples" />
        </div>
      )}
      {(grid === null || read.error !== null || read.slow) && (
        <div class="over-heat">
          <Placeholder of={read} what={filtered ? "every sample that matches the filter" : "the cores"} />
        </div>
      )}
      <div class="under-heat">
        <RowTools />
        {slices ? <SliceLegend of={slices} /> : <Legend />}
        {slices && <MarkedProcess of={slices} shown={debounced} />}
        {slices ? <SliceTable of={slices} shown={debounced} /> : <WorstCells grid={grid} shown={debounced} />}
      </div>
    </Lane>
  );
}

/** Why there is nothing to see, which would look like a drawing that failed. */
function FlatHeat({ measure, filtered }: { measure: Measure; filtered: boolean }): JSX.Element {
  return (
    <p class="over-heat flat" data-testid="flat-heat">
      {nothingText(measure, filtered)}{" "}
      {measure !== "busy" && !filtered && (
        <button type="button" class="link" onClick={() => change({ measure: "busy" }, "replace")}>
          show the busiest
        </button>
      )}
    </p>
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

interface Shown {
  grid: CoreGrid | null;
  rows: Rows;
  slices: Slices | null;
}

function pointedPart(on: Shown, place: Place): Pointed | PointedSlice | null {
  if (on.rows.cpus.length === 0) return null;
  const { slices } = on;
  if (slices && place.at >= slices.since && place.at < slices.until) {
    const cpu = on.rows.cpus[place.row].find((each) => slices.cpus.includes(each));
    if (cpu === undefined) return null;
    const index = sliceAt(slices, cpu, place.at);
    // With a filter nothing is known of the time between.
    if (index < 0 && slices.filtered) return null;
    const at = Math.floor(place.at);
    const slice = index < 0 ? { ...NOT_SAMPLED, since: at, until: at + 1, cpu } : describeSlice(slices, index);
    return { slice, x: place.x, y: place.y };
  }
  if (!on.grid) return null;
  // Of pooled cores the one that is seen: the worst.
  const cell = worstOf(on.grid, on.rows.cpus[place.row], place.at);
  return cell && { cell, x: place.x, y: place.y };
}

/** A click on a slice selects it, and highlights its process. False where there is none. */
function clickSlice(on: Shown, at: number, row: number): boolean {
  if (!on.slices || pickingBase.peek()) return false;
  for (const cpu of on.rows.cpus[row] ?? []) {
    const index = sliceAt(on.slices, cpu, at);
    if (index < 0 || on.slices.thread[index] < 0) continue;
    selectSlice(describeSlice(on.slices, index));
    return true;
  }
  return false;
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
  const { order, tall, pinned, cpus, slices } = state.value;
  const many = (recording.value?.cores ?? 0) > 1;
  const short = isShort(view.value);
  if (!many && !short) return <></>;
  return (
    <div class="row-tools" role="group" aria-label="rows of the heatmap">
      {short && (
        <button
          type="button"
          aria-pressed={slices}
          title="who had each core, or the measure chosen above (w)"
          onClick={toggleSlices}
        >
          who ran
        </button>
      )}
      <button
        type="button"
        aria-pressed={order === "worst"}
        title="the worst core in view first (o)"
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
