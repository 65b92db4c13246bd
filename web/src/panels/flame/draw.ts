/** Draws a layout of a flame graph on a canvas. */
import type { FlameColour } from "../../address";
import { blend, css, GREW, hueOf, rgb, SHRANK, type Rgb, type Theme } from "../../theme";
import { ROW, type Layout } from "./layout";
import { growth, type FlameModel, type Matches } from "./model";

export interface Look {
  theme: Theme;
  colour: FlameColour;
  /** Flames grow upwards. */
  up: boolean;
  matches: Matches | null;
  /** The label whose places are outlined; -1 is none. */
  lit: number;
  /** Indexes into the layout: under the pointer, and under the keyboard. */
  hovered: number;
  focused: number;
}

const FONT = "12px system-ui, sans-serif";
const LEAST_TEXT = 28;
const PROCESS_HUE = "#b9bcc0";
/** Modules have distinct hues; the tooltip names the module. */
const MODULE_HUES = ["#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#8a8f98"];
/** A change of this much of the whole has the full colour. */
const FULL_GROWTH = 0.25;
const SHADES = 7;
const LIT_PX = 2.5;

export function rowTop(layout: Layout, row: number, up: boolean): number {
  return (up ? layout.rows - 1 - row : row) * ROW;
}

export function rowAt(layout: Layout, y: number, up: boolean): number {
  const row = Math.floor(y / ROW);
  return up ? layout.rows - 1 - row : row;
}

export function drawFlame(canvas: HTMLCanvasElement, model: FlameModel, layout: Layout, look: Look): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const ratio = window.devicePixelRatio || 1;
  const width = layout.pixels;
  const height = layout.rows * ROW;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  fill(pen, model, layout, look);
  outline(pen, model, layout, look);
  for (const [index, weight] of [
    [look.focused, 2],
    [look.hovered, 1.5],
  ] as const) {
    if (index < 0 || index >= layout.count) continue;
    pen.strokeStyle = css(look.theme.ink);
    pen.lineWidth = weight;
    pen.strokeRect(
      layout.x[index] + 1,
      rowTop(layout, layout.row[index], look.up) + 1,
      Math.max(layout.width[index] - 2, 1),
      ROW - 3,
    );
  }
}

/** Frames of one colour are filled together: there are few colours, and thousands of frames. */
function fill(pen: CanvasRenderingContext2D, model: FlameModel, layout: Layout, look: Look): void {
  const { flame, label } = model;
  const groups = new Map<number, { colour: Rgb; frames: number[] }>();
  const ground = rgb(look.theme.dark ? "#16191f" : "#ffffff");
  for (let i = 0; i < layout.count; i++) {
    const node = layout.node[i];
    const unmatched = look.matches !== null && look.matches.labels[label[node]] === 0;
    const above = i < layout.ancestors;
    const key = colourKey(model, node, look) * 4 + (unmatched ? 1 : 0) + (above ? 2 : 0);
    let group = groups.get(key);
    if (!group) {
      let colour = colourOf(model, node, look);
      if (unmatched) colour = blend(colour, ground, 0.62);
      if (above) colour = blend(colour, ground, 0.45);
      group = { colour, frames: [] };
      groups.set(key, group);
    }
    group.frames.push(i);
  }
  for (const { colour, frames } of groups.values()) {
    pen.fillStyle = css(colour);
    for (const i of frames) pen.fillRect(layout.x[i], top(layout, i, look), seenWidth(layout, i), ROW - 1);
  }
  if (look.matches) {
    pen.fillStyle = css(look.theme.ink);
    for (let i = 0; i < layout.count; i++) {
      if (look.matches.labels[label[layout.node[i]]] !== 1) continue;
      pen.fillRect(layout.x[i], top(layout, i, look) + ROW - 3, seenWidth(layout, i), 2);
    }
  }
  for (const { colour, frames } of groups.values()) {
    pen.fillStyle = inkOn(colour);
    for (const i of frames) {
      if (layout.width[i] < LEAST_TEXT) continue;
      write(pen, flame.labels.name[label[layout.node[i]]], layout.x[i], top(layout, i, look), layout.width[i]);
    }
  }
}

/** All places of a function; those too thin for a frame around them are filled. */
function outline(pen: CanvasRenderingContext2D, model: FlameModel, layout: Layout, look: Look): void {
  if (look.lit < 0) return;
  pen.strokeStyle = pen.fillStyle = look.theme.accent;
  pen.lineWidth = LIT_PX;
  for (let i = 0; i < layout.count; i++) {
    if (model.label[layout.node[i]] !== look.lit) continue;
    const [x, y, wide] = [layout.x[i], top(layout, i, look), seenWidth(layout, i)];
    if (wide < 3 * LIT_PX) pen.fillRect(x, y, Math.max(wide, 1), ROW - 1);
    else pen.strokeRect(x + LIT_PX / 2, y + LIT_PX / 2, wide - LIT_PX, ROW - 1 - LIT_PX);
  }
}

function top(layout: Layout, index: number, look: Look): number {
  return rowTop(layout, layout.row[index], look.up);
}

/** A thin line of ground stays between neighbours. */
function seenWidth(layout: Layout, index: number): number {
  return Math.max(layout.width[index] - 0.6, 0.4);
}

function write(pen: CanvasRenderingContext2D, name: string, x: number, y: number, width: number): void {
  // About seven pixels a letter; measuring every one would cost more than drawing.
  const room = Math.floor((width - 6) / 6.6);
  pen.fillText(
    name.length <= room ? name : `${name.slice(0, Math.max(1, room - 1))}…`,
    x + 3,
    y + ROW / 2 - 0.5,
    width - 4,
  );
}

/** Black or white, whichever is read more easily on a colour; one of them has a contrast of 4.5 on any. */
export function inkOn(colour: Rgb): string {
  const [red, green, blue] = colour.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  // Equal contrast to both: (light + 0.05)² = 1.05 × 0.05.
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.1791 ? "#000000" : "#ffffff";
}

export function colourOf(model: FlameModel, node: number, look: Pick<Look, "colour" | "theme">): Rgb {
  const { flame } = model;
  const label = model.label[node];
  if (look.colour === "difference" && flame.differential) {
    const grown = growth(model, node);
    const still = rgb(look.theme.unchanged);
    const amount = Math.min(1, Math.sqrt(Math.abs(grown) / FULL_GROWTH));
    return Math.abs(grown) < 0.0005 ? still : blend(still, rgb(grown > 0 ? GREW : SHRANK), amount);
  }
  const state = flame.states[model.state[node]];
  if (state === "") return rgb(PROCESS_HUE);
  if (look.colour === "module") {
    return varied(rgb(MODULE_HUES[hash(flame.labels.module[label] || state) % MODULE_HUES.length]), label);
  }
  return varied(rgb(hueOf(state)), label);
}

/** Frames with the same number have the same colour. */
function colourKey(model: FlameModel, node: number, look: Look): number {
  if (look.colour === "difference") return node;
  const label = model.label[node];
  const state = model.state[node];
  if (look.colour === "state" || model.flame.states[state] === "") return state * SHADES + shade(label);
  return label;
}

/** Neighbours of one hue differ a little in lightness, so that their borders are seen. */
function varied(colour: Rgb, label: number): Rgb {
  return blend(colour, [255, 255, 255], shade(label) * 0.05);
}

function shade(label: number): number {
  return (label * 2654435761) % SHADES;
}

function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}
