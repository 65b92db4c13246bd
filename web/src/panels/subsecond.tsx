/** Samples by when in their second they were taken: what repeats, and what stood still, shows as a pattern. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { announce, TableInstead } from "../a11y";
import { api, question } from "../api";
import { count, duration, plural, range, time } from "../format";
import { Standby, useResource } from "../resource";
import { select, state, change, type Analysed } from "../state";
import { blend, css, rgb, theme } from "../theme";
import type { Subsecond } from "../wire";
import { savePicture } from "./export";
import type { Panel, PanelProps } from "./panel";

const MOST_COLUMNS = 1800;
const HEIGHT = 300;
const HUE = "#d55e00";
const BUSIEST = 12;

interface Cell {
  column: number;
  row: number;
}

function SubsecondBody({ of }: PanelProps): JSX.Element {
  const { column, rows } = state.value;
  const columnMs = fitting(of, column);
  const key = question({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters, columnMs, rows });
  const read = useResource(key, (signal) => api.subsecond(of, columnMs, rows, signal));
  const grid = read.value;
  return (
    <div data-testid="subsecond" aria-busy={read.loading}>
      <p class="muted">
        Each column is {duration(columnMs)} of wall time, from its beginning (bottom) to its end (top); darker is more
        samples. Drag over it to select that time.
        {columnMs !== column && ` Columns of ${duration(column)} would be too many here.`}
      </p>
      <Standby of={read} what="the samples" empty={grid !== null && grid.most === 0 && "No stack was sampled here."} />
      {grid && grid.most > 0 && <Offsets grid={grid} of={of} />}
    </div>
  );
}

/** The column that was asked for, or one wide enough that there is room for all. */
function fitting(of: Analysed, column: number): number {
  const least = (of.until - of.since) / MOST_COLUMNS;
  let wide = Math.max(100, column);
  while (wide < least) wide *= 2;
  return Math.min(60_000, wide);
}

function Offsets({ grid, of }: { grid: Subsecond; of: Analysed }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [drag, setDrag] = useState<{ from: Cell; to: Cell } | null>(null);
  const [over, setOver] = useState<Cell | null>(null);
  const look = theme.value;
  useEffect(() => {
    if (canvas.current) draw(canvas.current, grid, drag, look.ground);
  }, [grid, drag, look]);
  const cellAt = (event: PointerEvent): Cell => {
    const box = canvas.current!.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * grid.columns);
    const row = grid.rows - 1 - Math.floor(((event.clientY - box.top) / box.height) * grid.rows);
    return { column: clamp(column, grid.columns - 1), row: clamp(row, grid.rows - 1) };
  };
  const begin = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    canvas.current!.setPointerCapture(event.pointerId);
    const at = cellAt(event);
    setDrag({ from: at, to: at });
  };
  const move = (event: PointerEvent): void => {
    const at = cellAt(event);
    setOver(at);
    if (drag) setDrag({ ...drag, to: at });
  };
  const end = (): void => {
    if (!drag) return;
    setDrag(null);
    take(grid, of, drag.from, drag.to);
  };
  return (
    <>
      <canvas
        ref={canvas}
        class="offsets-canvas"
        role="img"
        aria-label={spoken(grid)}
        data-testid="offsets"
        onPointerDown={begin}
        onPointerMove={move}
        onPointerUp={end}
        onPointerCancel={() => setDrag(null)}
        onPointerLeave={() => setOver(null)}
      />
      <p class="offsets-words" data-testid="offsets-words">
        {over ? words(grid, over) : "\u00a0"}
      </p>
      <TableInstead
        summary="The busiest cells, as a table"
        caption="cells with the most samples"
        rows={busiest(grid)}
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
        ]}
      />
    </>
  );
}

function spoken(grid: Subsecond): string {
  const columns = `${plural(grid.columns, "column")} of ${duration(grid.column_ms)}`;
  return `sub-second heatmap: ${columns}, at most ${plural(grid.most, "sample")} in a cell`;
}

function clamp(value: number, most: number): number {
  return Math.min(Math.max(value, 0), most);
}

function countOf(grid: Subsecond, { column, row }: Cell): number {
  return grid.counts[column * grid.rows + row];
}

function startOf(grid: Subsecond, { column, row }: Cell): number {
  return grid.since + column * grid.column_ms + (row * grid.column_ms) / grid.rows;
}

/** From the earlier of two cells to the end of the later one, across the columns between. */
function take(grid: Subsecond, of: Analysed, one: Cell, other: Cell): void {
  const [first, last] = startOf(grid, one) <= startOf(grid, other) ? [one, other] : [other, one];
  const since = Math.max(grid.since, Math.floor(startOf(grid, first)));
  const until = Math.min(grid.until, Math.ceil(startOf(grid, last) + grid.column_ms / grid.rows));
  select({ since, until: Math.max(until, since + 1) }, of.list);
  announce(`selected ${range(since, until, state.peek().utc)}`);
}

function words(grid: Subsecond, cell: Cell): string {
  const at = startOf(grid, cell);
  const found = plural(countOf(grid, cell), "sample");
  return `${time(at, state.peek().utc, true)}: ${found} in ${duration(grid.column_ms / grid.rows)}`;
}

function busiest(grid: Subsecond): Cell[] {
  const order = Array.from(grid.counts.keys()).sort((a, b) => grid.counts[b] - grid.counts[a]);
  return order
    .slice(0, BUSIEST)
    .filter((at) => grid.counts[at] > 0)
    .map((at) => ({ column: Math.floor(at / grid.rows), row: at % grid.rows }));
}

function draw(
  canvas: HTMLCanvasElement,
  grid: Subsecond,
  drag: { from: Cell; to: Cell } | null,
  ground: readonly [number, number, number],
): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, HEIGHT];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = css(ground);
  pen.fillRect(0, 0, width, height);
  const [wide, high] = [width / grid.columns, height / grid.rows];
  const hue = rgb(HUE);
  for (let column = 0; column < grid.columns; column++) {
    for (let row = 0; row < grid.rows; row++) {
      const found = grid.counts[column * grid.rows + row];
      if (found === 0) continue;
      // By the root, so that few samples beside many are still seen.
      pen.fillStyle = css(blend(ground, hue, 0.15 + 0.85 * Math.sqrt(found / grid.most)));
      pen.fillRect(column * wide, height - (row + 1) * high, Math.max(wide - 0.3, 0.7), Math.max(high - 0.3, 0.7));
    }
  }
  if (drag) {
    pen.fillStyle = "rgb(86 180 233 / 0.35)";
    const [from, to] = [drag.from.column, drag.to.column].sort((a, b) => a - b);
    pen.fillRect(from * wide, 0, (to - from + 1) * wide, height);
  }
}

function SubsecondTools(): JSX.Element {
  const { column, rows } = state.value;
  return (
    <>
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
      <button type="button" onClick={() => savePicture(document.querySelector<HTMLCanvasElement>(".offsets-canvas"))}>
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
