/** Samples by their offset within the second: periodic work and stalls show as patterns. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce, TableInstead } from "../a11y";
import { api } from "../api";
import { count, duration, plural, range, time } from "../format";
import { queryString } from "../http";
import { Placeholder, useResource } from "../resource";
import { select, state, change, recording, type Analysed } from "../state";
import { theme } from "../theme";
import { overviewGrid } from "../timeline/overview";
import { partPicture } from "../timeline/picture";
import type { Subsecond } from "../types";
import { savePicture } from "./export";
import { ColumnAxis, OffsetAxis, OffsetLegend, offsetTitle } from "./offsetaxes";
import { drawCells, drawChosen } from "./offsetdraw";
import { busiest, cellAt, countOf, fitting, kernelOf, spanOf, startOf, stepped, type Cell } from "./offsets";
import type { Panel, PanelProps } from "./panel";
import { noSamplesReason, noStacksReason, ConfirmLongRange, useLongRange } from "./empty-states";
import { useWidth } from "./width";

const BUSIEST = 12;
/** Columns and rows: time runs up in a column. */
const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, 1],
  ArrowDown: [0, -1],
};

function SubsecondBody({ of }: PanelProps): JSX.Element {
  const { column, rows } = state.value;
  const columnMs = fitting(of, column);
  const key = queryString({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters, columnMs, rows });
  const [long, confirm] = useLongRange(of);
  const read = useResource(long ? null : key, (signal) => api.subsecond(of, columnMs, rows, signal));
  const grid = read.value;
  if (long) return <ConfirmLongRange of={of} onConfirm={confirm} />;
  return (
    <div data-testid="subsecond" aria-busy={read.loading}>
      <p class="muted">
        Each column is {columnMs === 1000 ? "a second" : duration(columnMs)} of wall time, from its beginning (bottom)
        to its end (top). Drag over it to select that time.
        {columnMs !== column && ` Columns of ${duration(column)} would be too many here.`}
      </p>
      <Placeholder
        of={read}
        what="the samples"
        empty={grid?.most === 0 && (noStacksReason(of) ?? noSamplesReason(of))}
      />
      {grid && grid.most > 0 && <Offsets grid={grid} of={of} />}
    </div>
  );
}

function Offsets({ grid, of }: { grid: Subsecond; of: Analysed }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [drag, setDrag] = useState<{ from: Cell; to: Cell } | null>(null);
  const [over, setOver] = useState<Cell | null>(null);
  /** The cell under the keyboard, and where widening began. */
  const [cursor, setCursor] = useState<{ from: Cell; to: Cell } | null>(null);
  const look = theme.value;
  const top = useMemo(() => busiest(grid, BUSIEST), [grid]);
  // The many cells are drawn once; what moves over them is drawn on a copy.
  const width = useWidth(canvas);
  const gaps = useMemo(
    () => (recording.peek()?.gaps ?? []).filter(([since, until]) => until > grid.from && since < grid.until),
    [grid],
  );
  const cells = useRef<HTMLCanvasElement | null>(null);
  useEffect(() => {
    cells.current = drawCells(width, grid, gaps, look);
  }, [grid, look, width]);
  useEffect(() => {
    if (canvas.current && cells.current) drawChosen(canvas.current, cells.current, grid, drag ?? cursor, look);
  }, [grid, drag, cursor, look, width]);
  useEffect(() => setCursor(null), [grid]);
  const under = (event: PointerEvent): Cell => {
    const box = canvas.current!.getBoundingClientRect();
    return cellAt(grid, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  const begin = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    canvas.current!.setPointerCapture(event.pointerId);
    const at = under(event);
    setDrag({ from: at, to: at });
  };
  const move = (event: PointerEvent): void => {
    const at = under(event);
    setOver(at);
    if (drag) setDrag({ ...drag, to: at });
  };
  const end = (): void => {
    if (!drag) return;
    setDrag(null);
    take(grid, of, drag.from, drag.to);
  };
  const onKeys = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS[event.key];
    if (step) {
      // The first key goes to the busiest cell.
      const to = cursor ? stepped(grid, cursor.to, ...step) : busiest(grid, 1)[0];
      setCursor({ from: cursor && event.shiftKey ? cursor.from : to, to });
      announce(cellLabel(grid, to));
    } else if (event.key === "Enter" && cursor) take(grid, of, cursor.from, cursor.to);
    else if (event.key === "Escape" && cursor) setCursor(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const shown = over ?? cursor?.to;
  return (
    <>
      <div class="offsets">
        <OffsetAxis grid={grid} />
        <canvas
          ref={canvas}
          class="offsets-canvas"
          role="application"
          aria-roledescription="heatmap"
          tabIndex={0}
          aria-label={`${gridLabel(grid)}. Arrows move a cell, Shift and arrows widen, Enter selects that time.`}
          onKeyDown={onKeys}
          onBlur={() => setCursor(null)}
          data-testid="offsets"
          onPointerDown={begin}
          onPointerMove={move}
          onPointerUp={end}
          onPointerCancel={() => setDrag(null)}
          onPointerLeave={() => setOver(null)}
        />
        <ColumnAxis grid={grid} width={width} />
        <OffsetLegend grid={grid} gaps={gaps.length > 0} />
      </div>
      <p class="offsets-label" data-testid="offsets-label">
        {shown ? cellLabel(grid, shown) : "\u00a0"}
      </p>
      <TableInstead
        summary="Busiest cells as a table"
        caption="cells with the most samples"
        rows={top}
        keyOf={(cell) => `${cell.column} ${cell.row}`}
        empty="no samples"
        columns={[
          {
            title: "from",
            cell: (cell: Cell) => (
              <button type="button" class="link" onClick={() => take(grid, of, cell, cell)}>
                {time(startOf(grid, cell), state.value.utc, true)}
              </button>
            ),
          },
          { title: "samples", numeric: true, cell: (cell: Cell) => count(countOf(grid, cell)) },
          { title: "in the kernel", numeric: true, cell: (cell: Cell) => count(kernelOf(grid, cell)) },
        ]}
      />
    </>
  );
}

function gridLabel(grid: Subsecond): string {
  const columns = `${plural(grid.columns, "column")} of ${duration(grid.column_ms)}`;
  const rows = `${plural(grid.rows, "row")} by ${offsetTitle(grid)}`;
  return `sub-second heatmap: ${columns}, ${rows}, at most ${plural(grid.most, "sample")} in a cell`;
}

/** Select the time from one cell to another. */
function take(grid: Subsecond, of: Analysed, one: Cell, other: Cell): void {
  const span = spanOf(grid, one, other);
  select(span, of.list);
  announce(`selected ${range(span.since, span.until, state.peek().utc)}`);
}

function cellLabel(grid: Subsecond, cell: Cell): string {
  const at = startOf(grid, cell);
  const samples = countOf(grid, cell);
  const found = plural(samples, "sample") + (samples > 0 ? ` (${count(kernelOf(grid, cell))} in the kernel)` : "");
  const offset = `${duration(at - grid.since - cell.column * grid.column_ms)} into the column`;
  return `${time(at, state.peek().utc, true)} (${offset}): ${found} in ${duration(grid.column_ms / grid.rows)}`;
}

/** All cores or one: what one core does every second is hidden in the sum of many. */
function CoreChoice({ of }: PanelProps): JSX.Element {
  const filtered = state.value.cores;
  const all = filtered ?? overviewGrid.value?.cpus ?? of.list ?? [];
  const one = of.list?.length === 1 ? String(of.list[0]) : "";
  const some = of.list !== null && of.list.length > 1 && of.list.length < all.length;
  const choose = (value: string): void => select(of, value === "" ? null : [Number(value)]);
  return (
    <label class="inline">
      cores{" "}
      <select
        value={some ? "some" : one}
        data-testid="one-core"
        onChange={(event) => choose(event.currentTarget.value)}
      >
        {some && <option value="some">the {of.list?.length} selected</option>}
        <option value="">all</option>
        {all.map((cpu) => (
          <option key={cpu} value={cpu}>
            core {cpu}
          </option>
        ))}
      </select>
    </label>
  );
}

function SubsecondTools({ of }: PanelProps): JSX.Element {
  const { column, rows } = state.value;
  return (
    <>
      <CoreChoice of={of} />
      <label class="inline">
        column{" "}
        <select
          value={column}
          data-testid="column"
          onChange={(event) => change({ column: Number(event.currentTarget.value) })}
        >
          {[100, 200, 500, 1000, 2000, 5000, 10_000, 60_000].map((each) => (
            <option key={each} value={each}>
              {duration(each)}
            </option>
          ))}
        </select>
      </label>
      <label class="inline">
        rows{" "}
        <select
          value={rows}
          data-testid="rows"
          onChange={(event) => change({ rows: Number(event.currentTarget.value) })}
        >
          {[10, 20, 50, 100, 200].map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
      <button
        type="button"
        title="save the drawing as a picture"
        data-testid="offsets-png"
        onClick={() => savePicture(partPicture(document.querySelector<HTMLElement>(".offsets"), of), "subsecond")}
      >
        PNG
      </button>
    </>
  );
}

export const subsecondPanel: Panel = {
  tab: "subsecond",
  title: "Sub-second",
  key: "3",
  Body: SubsecondBody,
  Tools: SubsecondTools,
};
