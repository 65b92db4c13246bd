/**
 * Puts slices on a canvas: one hue per process, pale in user code, strong with a stripe of the state's colour in the
 * kernel; idle has the ground's colour, what was not sampled is hatched.
 */
import { blend, css, hueOf, rgb, type Rgb, type Theme } from "../../theme";
import type { Slices, Span } from "../../types";
import { position } from "../axis";
import { hatching } from "../hatch";
import { heightOf, type Rows } from "../heat";
import { hueOfProcess, lineBounds } from "./model";

export interface SliceScene {
  rows: Rows;
  view: Span;
  look: Theme;
  slices: Slices;
  /** The process that is highlighted; the others fade. */
  marked: number | null;
  /** What a slice may be called, the longest first; by default its thread and process. */
  labels?: (index: number) => string[];
}

/** Rows from this height on have a stripe, and names from that one on. */
const STRIPED_PX = 5;
const NAMED_PX = 11;
const LEAST_NAME_PX = 18;
const FADED = 0.8;
/** On every colour of a slice, in both schemes: a name may reach over slices of both states. */
export const NAME_INK: Rgb = [0, 0, 0];

export function drawSlices(canvas: HTMLCanvasElement, scene: SliceScene): void {
  const context = canvas.getContext("2d", { alpha: false });
  if (!context) return;
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.width;
  const { slices, rows, view } = scene;
  const left = Math.max(0, position(slices.since, view, width));
  const right = Math.min(width, position(slices.until, view, width));
  if (right <= left) return;
  // With a filter nothing is claimed about the time between: it is neither idle nor unsampled.
  const pattern = slices.filtered ? null : hatching(context, scene.look, ratio);
  context.fillStyle = pattern ?? css(scene.look.ground);
  context.fillRect(left, 0, right - left, heightOf(rows) * ratio);
  const { body, stripe } = pixelsOf(scene, width);
  context.imageSmoothingEnabled = false;
  const bodies = imageOf(body, width, rows.cpus.length);
  const stripes = imageOf(stripe, width, rows.cpus.length);
  rows.cpus.forEach((_, row) => {
    const [top, bottom] = [Math.round(rows.tops[row] * ratio), Math.round(rows.tops[row + 1] * ratio)];
    const high = bottom - top;
    // A line between rows, where there is room for one.
    const gap = high >= STRIPED_PX * ratio ? Math.round(ratio) : 0;
    context.drawImage(bodies, 0, row, width, 1, 0, top, width, high - gap);
    if (gap === 0) return;
    const thick = Math.max(1, Math.round(high / 5));
    context.drawImage(stripes, 0, row, width, 1, 0, bottom - gap - thick, width, thick);
    context.fillStyle = css(scene.look.page);
    context.fillRect(left, bottom - gap, right - left, gap);
  });
  drawNames(context, scene, ratio);
}

function imageOf(pixels: Uint32Array, width: number, height: number): HTMLCanvasElement {
  const image = document.createElement("canvas");
  image.width = width;
  image.height = Math.max(1, height);
  const bytes = new Uint8ClampedArray(pixels.buffer as ArrayBuffer);
  if (height > 0) image.getContext("2d")?.putImageData(new ImageData(bytes, width, height), 0, 0);
  return image;
}

/** Rows x pixels; where nothing is known they are transparent. */
export function pixelsOf(scene: SliceScene, width: number): { body: Uint32Array; stripe: Uint32Array } {
  const { slices, rows, view } = scene;
  const body = new Uint32Array(width * rows.cpus.length);
  const stripe = new Uint32Array(width * rows.cpus.length);
  const bodies = bodyColours(scene);
  const stripes = slices.states.map((state) => (hasStripe(state) ? pack(rgb(hueOf(state))) : 0));
  const edges = lineBounds(slices);
  const lines = new Map(slices.cpus.map((cpu, line) => [cpu, line]));
  const perUs = width / ((view.until - view.since) * 1000);
  const origin = (slices.since - view.since) * 1000;
  rows.cpus.forEach((cpus, row) => {
    const begin = row * width;
    for (const cpu of cpus) {
      const line = lines.get(cpu);
      if (line === undefined) continue;
      for (let i = edges[line]; i < edges[line + 1]; i++) {
        const from = Math.max(0, Math.round((origin + slices.start[i]) * perUs));
        if (from >= width) break;
        const end = Math.round((origin + slices.start[i] + slices.length[i]) * perUs);
        // A slice that is thinner than a pixel still has one.
        const to = Math.min(width, Math.max(from + 1, end));
        if (end < 0) continue;
        const colour = bodies(slices.thread[i], slices.state[i]);
        const idle = slices.thread[i] < 0;
        for (let x = begin + from; x < begin + to; x++) {
          // Of pooled cores, and of slices that share a pixel, one that ran wins over one that idled.
          if (idle && body[x] !== 0) continue;
          body[x] = colour;
          stripe[x] = stripes[slices.state[i]];
        }
      }
    }
  });
  return { body, stripe };
}

function hasStripe(state: string): boolean {
  return state === "system" || state === "softirq";
}

function bodyColours(scene: SliceScene): (thread: number, state: number) => number {
  const { slices, look, marked } = scene;
  const known = new Map<number, number>();
  const idle = pack(look.ground);
  return (thread, state) => {
    if (thread < 0) return idle;
    const key = thread * 8 + state;
    const cached = known.get(key);
    if (cached !== undefined) return cached;
    const colour = pack(sliceColour(slices.pids[thread], slices.states[state], look, marked));
    known.set(key, colour);
    return colour;
  };
}

/** The colour of a process in a state. */
export function sliceColour(pid: number, state: string, look: Theme, marked: number | null = null): Rgb {
  const strong = hasStripe(state);
  const light = look.dark ? (strong ? 0.7 : 0.54) : strong ? 0.66 : 0.85;
  const colour = hsl(hueOfProcess(pid), strong ? 0.7 : look.dark ? 0.22 : 0.45, light);
  return marked !== null && marked !== pid ? blend(colour, look.ground, FADED) : colour;
}

export function hsl(hue: number, saturation: number, lightness: number): Rgb {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  const part = (shift: number): number => {
    const at = (shift + hue / 30) % 12;
    return Math.round(255 * (lightness - reach * Math.max(-1, Math.min(at - 3, 9 - at, 1))));
  };
  return [part(0), part(8), part(4)];
}

function pack([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Neighbours of one name, whatever the state, have it once. Where a process is highlighted, only its slices do. */
function drawNames(context: CanvasRenderingContext2D, scene: SliceScene, ratio: number): void {
  const { slices, rows, view, marked } = scene;
  const width = context.canvas.width;
  const edges = lineBounds(slices);
  const lines = new Map(slices.cpus.map((cpu, line) => [cpu, line]));
  const labels = scene.labels ?? ((index) => threadLabels(slices, slices.thread[index]));
  const place = (us: number): number => position(slices.since + us / 1000, view, width);
  context.textBaseline = "middle";
  context.fillStyle = css(NAME_INK);
  rows.cpus.forEach((cpus, row) => {
    const high = rows.tops[row + 1] - rows.tops[row];
    const line = cpus.length === 1 ? lines.get(cpus[0]) : undefined;
    if (high < NAMED_PX || line === undefined) return;
    context.font = `${Math.min(11, high - 3) * ratio}px system-ui, sans-serif`;
    const middle = ((rows.tops[row] + rows.tops[row + 1]) / 2 - 1) * ratio;
    for (let i = edges[line]; i < edges[line + 1]; ) {
      const thread = slices.thread[i];
      let end = i + 1;
      const follows = (next: number): boolean =>
        slices.thread[next] === thread && slices.start[next] === slices.start[next - 1] + slices.length[next - 1];
      const names = thread < 0 ? [] : labels(i);
      while (end < edges[line + 1] && follows(end) && (thread < 0 || labels(end)[0] === names[0])) end++;
      const from = Math.max(0, place(slices.start[i]));
      const to = Math.min(width, place(slices.start[end - 1] + slices.length[end - 1]));
      i = end;
      if (thread < 0 || to - from < LEAST_NAME_PX * ratio) continue;
      const pid = slices.pids[thread];
      if (marked !== null && marked !== pid) continue;
      const label = fitting(context, names, to - from - 6 * ratio);
      if (!label) continue;
      context.fillText(label, from + 3 * ratio, middle);
    }
  });
}

function threadLabels(slices: Slices, thread: number): string[] {
  return [`${slices.comms[thread]} ${slices.pids[thread]}`, slices.comms[thread]];
}

/** The first of some labels that fits, else the beginning of the last one, of three letters at least. */
function fitting(context: CanvasRenderingContext2D, labels: string[], room: number): string {
  const whole = labels.find((label) => context.measureText(label).width <= room);
  if (whole !== undefined) return whole;
  const last = labels[labels.length - 1];
  const letters = Math.floor((room / Math.max(1, context.measureText(last).width)) * last.length) - 1;
  return letters >= 3 ? `${last.slice(0, letters)}…` : "";
}
