/** The same frames and the same cells, drawn by each library and by the page's own code. Runs in the browser. */
import flamegraph from "d3-flame-graph";
import { select } from "d3-selection";
import { HeatmapChart } from "echarts/charts";
import { DataZoomComponent, GridComponent, VisualMapComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { FlameChart } from "flame-chart-js";
import { drawFlame, type Look } from "../../web/src/panels/flame/draw";
import { layOut, ROW } from "../../web/src/panels/flame/layout";
import { modelOf } from "../../web/src/panels/flame/model";
import { LIGHT } from "../../web/src/theme";
import { rowsFor } from "../../web/src/timeline/heat";
import { drawHeat, pictureOf, type Picture } from "../../web/src/timeline/heatdraw";
import type { CoreGrid, Flame } from "../../web/src/types";
import { largeFlame } from "../../web/tests/flames";

const WIDTH = 1400;
const AGAIN = 7;

/** Milliseconds of the first picture, and the median of those after it. */
type Times = { first: number; again: number };

interface Nested {
  name: string;
  value: number;
  children: Nested[];
}

/** From the call to the second animation frame after it: by then it is on the screen. */
async function timed(draw: () => void): Promise<number> {
  const began = performance.now();
  draw();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))));
  return performance.now() - began;
}

async function times(first: () => void, again: (round: number) => void): Promise<Times> {
  const begin = await timed(first);
  const rest: number[] = [];
  for (let round = 0; round < AGAIN; round++) rest.push(await timed(() => again(round)));
  return { first: begin, again: rest.sort((a, b) => a - b)[AGAIN >> 1] };
}

function emptied(): HTMLElement {
  const host = document.getElementById("host")!;
  host.replaceChildren();
  return host;
}

function canvasIn(host: HTMLElement, width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  host.append(canvas);
  return canvas;
}

function nested(flame: Flame): Nested {
  const nodes = flame.label.map((label, i): Nested => ({
    name: flame.labels.name[label],
    value: flame.weight[i],
    children: [],
  }));
  for (let i = 1; i < nodes.length; i++) nodes[flame.parent[i]].children.push(nodes[i]);
  return nodes[0];
}

interface Timed {
  name: string;
  start: number;
  duration: number;
  children: Timed[];
}

/** Sums as spans with invented starts, which is what a chart of time needs. */
function asSpans({ name, value, children }: Nested, start: number): Timed {
  let at = start;
  const inside = children.map((child) => {
    const span = asSpans(child, at);
    at += child.value;
    return span;
  });
  return { name, start, duration: value, children: inside };
}

async function flames(size: number): Promise<Record<string, Times>> {
  const flame = largeFlame(size);
  const rows = 26;
  const model = modelOf(flame);
  const own = canvasIn(emptied(), WIDTH, rows * ROW);
  const draw = (up: boolean): void => {
    const layout = layOut(model, 0, WIDTH);
    if (layout.count !== flame.label.length) throw new Error(`only ${layout.count} frames are drawn`);
    const look: Look = { theme: LIGHT, colour: "state", up, matches: null, hovered: -1, focused: -1 };
    drawFlame(own, model, layout, look);
  };
  const byHand = await times(() => draw(false), (round) => draw(round % 2 === 0));

  const host = emptied();
  const chart = flamegraph().width(WIDTH).cellHeight(ROW).minFrameSize(0).transitionDuration(0);
  const d3 = await times(
    () => void select(host).datum(nested(flame)).call(chart),
    (round) => {
      chart.inverted(round % 2 === 0);
      chart.update();
    },
  );
  const elements = host.querySelectorAll("rect").length;
  if (elements < flame.label.length) throw new Error(`d3-flame-graph drew only ${elements} frames`);

  const spans = [asSpans(nested(flame), 0)];
  const canvas = canvasIn(emptied(), WIDTH, rows * ROW);
  let other: FlameChart;
  const flameChart = await times(
    () => {
      other = new FlameChart({ canvas, data: spans, settings: {} });
    },
    () => {
      other.setNodes(spans);
      other.render();
    },
  );
  return { "d3-flame-graph": d3, "flame-chart-js": flameChart, "by hand": byHand };
}

async function heatmaps(cores: number, cells: number): Promise<Record<string, Times>> {
  const values = new Uint8Array(cores * cells);
  const dominant = new Uint8Array(cores * cells);
  for (let i = 0, seed = 7; i < values.length; i++) {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    values[i] = (seed >>> 16) % 251;
    dominant[i] = (seed >>> 8) % 5;
  }
  const cpus = Array.from({ length: cores }, (_, i) => i);
  const whole = { since: 0, until: cells * 1000 };
  const states = ["system", "softirq", "user", "steal", "iowait"];
  const shape = { cells, cpus, measure: "busy", unit: "", states, full: 250, unrecorded: 255 };
  const grid = { ...whole, ...shape, values, dominant } as unknown as CoreGrid;
  const rows = rowsFor(cpus);
  const height = rows.height * rows.cpus.length;
  const canvas = canvasIn(emptied(), WIDTH, height);
  let picture: Picture;
  const draw = (since: number, until: number): void =>
    drawHeat(canvas, {
      width: WIDTH,
      height,
      view: { since, until },
      whole,
      look: LIGHT,
      pictures: [picture],
      paint: null,
    });
  const byHand = await times(
    () => {
      picture = pictureOf(grid, rows, LIGHT, "heat")!;
      draw(0, whole.until);
    },
    (round) => draw(round * 1000, whole.until - round * 5000),
  );

  echarts.use([HeatmapChart, GridComponent, VisualMapComponent, DataZoomComponent, CanvasRenderer]);
  const host = emptied();
  const place = document.createElement("div");
  place.style.width = `${WIDTH}px`;
  place.style.height = `${height}px`;
  host.append(place);
  const chart = echarts.init(place);
  const data = Array.from(values, (value, i) => [i % cells, Math.floor(i / cells), value]);
  const option = {
    animation: false,
    grid: { left: 0, right: 0, top: 0, bottom: 0 },
    xAxis: { type: "category", data: Array.from({ length: cells }, (_, i) => i), show: false },
    yAxis: { type: "category", data: cpus, show: false },
    visualMap: { min: 0, max: 250, show: false },
    dataZoom: [{ type: "inside" }],
    series: [{ type: "heatmap", data, progressive: 0 }],
  };
  const eCharts = await times(
    () => chart.setOption(option),
    (round) => chart.dispatchAction({ type: "dataZoom", startValue: round, endValue: cells - 5 * round }),
  );
  return { ECharts: eCharts, "by hand": byHand };
}

Object.assign(window, { flames, heatmaps });
