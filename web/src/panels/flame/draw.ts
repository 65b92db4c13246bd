/** Painting a laid-out flame graph on a canvas. */
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
  /** Indexes into the layout: under the pointer, and under the keyboard. */
  hovered: number;
  focused: number;
}

const FONT = "12px system-ui, sans-serif";
const LEAST_TEXT = 28;
const PROCESS_HUE = "#b9bcc0";
/** Kinds of modules get hues that can be told apart from each other; which is which says the tooltip. */
const MODULE_HUES = ["#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#8a8f98"];
/** A change of this much of the whole has the full colour. */
const FULL_GROWTH = 0.25;

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
  const width = canvas.clientWidth;
  const height = layout.rows * ROW;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const colours = new Map<number, Rgb>();
  const ground = rgb(look.theme.dark ? "#16191f" : "#ffffff");
  for (let i = 0; i < layout.count; i++) {
    const node = layout.node[i];
    const label = model.flame.label[node];
    const key = look.colour === "difference" ? -1 - node : label * 8 + model.flame.state[node];
    let colour = colours.get(key);
    if (!colour) {
      colour = colourOf(model, node, look);
      colours.set(key, colour);
    }
    const found = look.matches ? look.matches.labels[label] === 1 : null;
    if (found === false) colour = blend(colour, ground, 0.62);
    if (i <= layout.ancestors && layout.ancestors > 0 && i < layout.ancestors) colour = blend(colour, ground, 0.45);
    const top = rowTop(layout, layout.row[i], look.up);
    const right = Math.max(layout.width[i] - 0.6, 0.4);
    pen.fillStyle = css(colour);
    pen.fillRect(layout.x[i], top, right, ROW - 1);
    if (found === true) {
      pen.fillStyle = css(look.theme.ink);
      pen.fillRect(layout.x[i], top + ROW - 3, right, 2);
    }
    if (layout.width[i] >= LEAST_TEXT)
      write(pen, model.flame.labels.name[label], layout.x[i], top, layout.width[i], colour);
  }
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

function write(pen: CanvasRenderingContext2D, name: string, x: number, top: number, width: number, on: Rgb): void {
  pen.fillStyle = inkOn(on);
  // About seven pixels a letter; measuring every one would cost more than drawing.
  const room = Math.floor((width - 6) / 6.6);
  pen.fillText(
    name.length <= room ? name : `${name.slice(0, Math.max(1, room - 1))}…`,
    x + 3,
    top + ROW / 2 - 0.5,
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
  const label = flame.label[node];
  if (look.colour === "difference" && flame.differential) {
    const grown = growth(model, node);
    const still = rgb(look.theme.unchanged);
    const amount = Math.min(1, Math.sqrt(Math.abs(grown) / FULL_GROWTH));
    return Math.abs(grown) < 0.0005 ? still : blend(still, rgb(grown > 0 ? GREW : SHRANK), amount);
  }
  const state = flame.states[flame.state[node]];
  if (state === "") return rgb(PROCESS_HUE);
  if (look.colour === "module") {
    return varied(rgb(MODULE_HUES[hash(flame.labels.module[label] || state) % MODULE_HUES.length]), label);
  }
  return varied(rgb(hueOf(state)), label);
}

/** Neighbours of one hue differ a little in lightness, so that their borders are seen. */
function varied(colour: Rgb, label: number): Rgb {
  return blend(colour, [255, 255, 255], ((label * 2654435761) % 7) * 0.05);
}

function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}
