/** The cores of a diagnosis over time: the kernel's share of the worst core, and every core as a row. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { percent, time, zone } from "../format";
import { useWidth } from "../panels/width";
import { theme } from "../theme";
import { position, ticks } from "../timeline/axis";
import { cellIndex, heightOf, labelledRows, rowAt, rowsFor, valueText, worstOf, type Rows } from "../timeline/heat";
import { drawHeat, pictureOf } from "../timeline/heatdraw";
import { Legend } from "../timeline/legend";
import { Ticks } from "../timeline/ruler";
import type { CoreGrid, DiagnosisReport, PackedCores, ReportEvent } from "../types";
import { stepPath } from "./steps";

type TimeSpan = { since_ms: number; until_ms: number };

const TALLEST_PX = 480;
/** Events this near to the pointer are listed, in cells. */
const NEAR_CELLS = 1.5;
const MAX_LISTED = 5;
const CURVE_HEIGHT = 100;

export function unpackCores(packed: PackedCores): CoreGrid {
  return { ...packed, values: new Uint16Array(bytesOf(packed.values).buffer), dominant: bytesOf(packed.dominant) };
}

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

interface Tip {
  text: string;
  x: number;
  y: number;
}

export function CoresChart(props: {
  grid: CoreGrid;
  kernel: DiagnosisReport["kernel"];
  focus: TimeSpan;
  baseline: TimeSpan | null;
  events: ReportEvent[];
  culprits: number[];
}): JSX.Element {
  const { grid, kernel, events } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(canvas);
  const rows = useMemo(() => rowsFor(grid.cpus, { tallest: TALLEST_PX }), [grid]);
  const height = heightOf(rows);
  const look = theme.value;
  const [tip, setTip] = useState<Tip | null>(null);
  // Before the browser paints, or prints.
  useLayoutEffect(() => {
    const picture = pictureOf(grid, rows, look, "heat");
    if (!canvas.current || !picture) return;
    drawHeat(canvas.current, { width, rows, view: grid, whole: grid, look, pictures: [picture], paint: null });
  }, [grid, rows, look, width]);

  const show = (text: (at: number, event: MouseEvent) => string | null) => (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const at = grid.since + ((event.clientX - box.left) / box.width) * (grid.until - grid.since);
    const found = text(at, event);
    setTip(found === null ? null : { text: found, x: event.clientX, y: event.clientY });
  };
  const overCurve = show((at) => {
    const cell = cellIndex(grid, at);
    const share = kernel.permille[cell];
    if (share === undefined) return null;
    const near = events.filter(({ at_ms }) => Math.abs(cellPosition(grid, at_ms) - cell - 0.5) < NEAR_CELLS);
    const core = `core ${kernel.cpus[cell]}`;
    const text = share < 0 ? "not recorded" : `${percent(share / 1000)} of ${core} in the kernel`;
    const listed = near.slice(0, MAX_LISTED).map((each) => `◆ ${each.text}`);
    return [`${time(startOf(grid, cell), false)}: ${text}`, ...listed].join("\n");
  });
  const overHeat = show((at, event) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = rows.cpus[rowAt(((event.clientY - box.top) / box.height) * heightOf(rows), rows)];
    return row ? cellText(grid, row, at) : null;
  });
  const marks = ticks(grid, width, false, 1000);
  return (
    <div class="cores-chart" onPointerLeave={() => setTip(null)}>
      <h3>Kernel time on the worst core</h3>
      <div class="chart-row">
        <div class="chart-labels" aria-hidden="true">
          <span>100 %</span>
          <span>50 %</span>
          <span>0 %</span>
        </div>
        <div class="curve" data-testid="curve" onPointerMove={overCurve}>
          <svg
            viewBox={`0 0 ${grid.cells} ${CURVE_HEIGHT}`}
            preserveAspectRatio="none"
            role="img"
            aria-label="kernel time on the worst core"
          >
            <path d={stepPath(kernel.permille.map((each) => [each, 1]), 1000, CURVE_HEIGHT)} />
          </svg>
          <Bands grid={grid} focus={props.focus} baseline={props.baseline} labelled />
          {events.map((event, index) => (
            <i
              key={index}
              class={`event-mark event-${event.severity}`}
              style={{ left: `${share(grid, event.at_ms)}%` }}
            />
          ))}
        </div>
      </div>
      <div class="chart-row">
        <div />
        <div class="ruler">
          <Ticks ticks={marks} shown={grid} width={width} />
        </div>
      </div>
      <h3>Cores, worst second of each cell</h3>
      <div class="chart-row">
        <RowLabels rows={rows} culprits={props.culprits} />
        <div class="heat-plot" data-testid="heat" onPointerMove={overHeat}>
          <canvas ref={canvas} class="heat" style={{ height: `${height}px` }} role="img" aria-label="cores by time" />
          <Bands grid={grid} focus={props.focus} baseline={props.baseline} />
        </div>
      </div>
      <div class="chart-row">
        <div />
        <div>
          <div class="ruler">
            <Ticks ticks={marks} shown={grid} width={width} />
          </div>
          <div class="chart-legend">
            <Legend of="busy" />
            <ul class="legend" aria-label="what the frames mean">
              <li>
                <i class="swatch band-focus" /> focus of the findings
              </li>
              {props.baseline && (
                <li>
                  <i class="swatch band-baseline" /> calm time, the baseline
                </li>
              )}
              <li class="less">◆ event; times in {zone(grid.since, false)}</li>
            </ul>
          </div>
        </div>
      </div>
      {tip && <TipBox tip={tip} />}
    </div>
  );
}

/** Focus and baseline, framed over a chart. Positions are shares of the width, so that they hold when it is printed. */
function Bands(props: { grid: CoreGrid; focus: TimeSpan; baseline: TimeSpan | null; labelled?: boolean }): JSX.Element {
  const { grid, focus, baseline, labelled } = props;
  const bands = [
    { kind: "baseline", span: baseline, label: "calm" },
    { kind: "focus", span: focus, label: "" },
  ];
  return (
    <>
      {bands.map(({ kind, span, label }) => {
        if (!span || span.until_ms <= span.since_ms) return null;
        const left = Math.max(0, share(grid, span.since_ms));
        const right = Math.min(100, share(grid, span.until_ms));
        if (right <= left) return null;
        return (
          <div key={kind} class={`band-${kind}`} style={{ left: `${left}%`, width: `${right - left}%` }}>
            {labelled && label && <span>{label}</span>}
          </div>
        );
      })}
    </>
  );
}

function RowLabels({ rows, culprits }: { rows: Rows; culprits: number[] }): JSX.Element {
  const height = heightOf(rows);
  const marked = rows.cpus.flatMap((cpus, row) => {
    const cpu = cpus.find((each) => culprits.includes(each));
    return cpu === undefined ? [] : [{ cpu, row, culprit: true }];
  });
  const apart = Math.ceil(16 / rows.height);
  const others = labelledRows(rows)
    .filter(({ row }) => !marked.some((each) => Math.abs(each.row - row) < apart))
    .map((each) => ({ ...each, culprit: false }));
  return (
    <div class="chart-cores" aria-hidden="true">
      {[...marked, ...others].map(({ cpu, row, culprit }) => (
        <span
          key={cpu}
          class={culprit ? "culprit" : ""}
          style={{ top: `${((rows.tops[row] + rows.tops[row + 1]) * 50) / height}%` }}
        >
          {culprit ? `▸ ${cpu}` : cpu}
        </span>
      ))}
    </div>
  );
}

function TipBox({ tip }: { tip: Tip }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!box.current) return;
    box.current.style.left = `${Math.min(tip.x + 14, window.innerWidth - box.current.offsetWidth - 8)}px`;
    box.current.style.top = `${Math.min(tip.y + 14, window.innerHeight - box.current.offsetHeight - 8)}px`;
  }, [tip]);
  return (
    <div class="tooltip report-tip" role="tooltip" data-testid="tip" ref={box}>
      {tip.text}
    </div>
  );
}

/** Of pooled cores the worst is described, as it is the one that is drawn. */
function cellText(grid: CoreGrid, cpus: number[], at: number): string | null {
  const cell = worstOf(grid, cpus, at);
  if (!cell) return null;
  const state = cell.value === null ? "not recorded" : valueText(cell);
  return `core ${cell.cpu} at ${time(cell.since, false)}\n${state}`;
}

function share(grid: CoreGrid, at: number): number {
  return position(at, grid, 100);
}

function cellPosition(grid: CoreGrid, at: number): number {
  return ((at - grid.since) / (grid.until - grid.since)) * grid.cells;
}

function startOf(grid: CoreGrid, cell: number): number {
  return grid.since + (cell * (grid.until - grid.since)) / grid.cells;
}
