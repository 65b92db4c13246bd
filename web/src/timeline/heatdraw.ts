/** Puts the heatmap on a canvas: pictures of cells, stretched to the view. No library draws cores x time by maxima. */
import type { Theme } from "../theme";
import { css } from "../theme";
import type { CoreGrid, Span } from "../types";
import { position } from "./axis";
import { hatching } from "./hatch";
import { heatPixels, heightOf, paintPixels, pooledHeat, type Rows } from "./heat";

/** A grid as a picture with one pixel per cell. */
export interface Picture {
  span: Span;
  image: HTMLCanvasElement;
}

export function pictureOf(grid: CoreGrid, rows: Rows, look: Theme, kind: "heat" | "paint"): Picture | null {
  if (rows.cpus.length === 0 || grid.cells === 0) return null;
  const heat = pooledHeat(grid, rows);
  const pixels = kind === "heat" ? heatPixels(grid, heat, look) : paintPixels(grid, heat, look);
  const image = document.createElement("canvas");
  image.width = grid.cells;
  image.height = rows.cpus.length;
  const bytes = new Uint8ClampedArray(pixels.buffer as ArrayBuffer);
  image.getContext("2d")?.putImageData(new ImageData(bytes, image.width, image.height), 0, 0);
  return { span: { since: grid.since, until: grid.until }, image };
}

export interface Scene {
  width: number;
  rows: Rows;
  view: Span;
  whole: Span;
  look: Theme;
  /** Coarse first, fine last. */
  pictures: Picture[];
  /** Painted over a faded heatmap. */
  paint: Picture | null;
}

export function drawHeat(canvas: HTMLCanvasElement, scene: Scene): void {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [scene.width, heightOf(scene.rows)].map((px) => Math.max(1, Math.round(px * ratio)));
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d", { alpha: false });
  if (!context) return;
  hatch(context, scene.look, width, height, ratio);
  // Not known yet is not the same as not recorded.
  context.fillStyle = css(scene.look.ground);
  const known = scene.pictures.length > 0;
  const left = known ? position(scene.whole.since, scene.view, width) : 0;
  const right = known ? position(scene.whole.until, scene.view, width) : width;
  context.fillRect(left, 0, right - left, height);
  context.imageSmoothingEnabled = false;
  for (const picture of scene.pictures) {
    cover(context, picture, scene, width, height);
    stretch(context, picture, scene, width);
  }
  // For tests and benchmarks: cores are drawn, not only the background.
  canvas.dataset.drawn = String(scene.pictures.length > 0);
  if (scene.paint) {
    context.fillStyle = css(scene.look.ground, 0.72);
    context.fillRect(0, 0, width, height);
    stretch(context, scene.paint, scene, width);
  }
}

/** A picture hides what is below it also where it is transparent (not recorded). */
function cover(context: CanvasRenderingContext2D, picture: Picture, scene: Scene, width: number, height: number): void {
  const left = position(picture.span.since, scene.view, width);
  const right = position(picture.span.until, scene.view, width);
  context.save();
  context.beginPath();
  context.rect(left, 0, right - left, height);
  context.clip();
  hatch(context, scene.look, width, height, window.devicePixelRatio || 1);
  context.restore();
}

/** Pinned rows are higher than the others: each kind is stretched by itself. */
function stretch(context: CanvasRenderingContext2D, picture: Picture, scene: Scene, width: number): void {
  const left = position(picture.span.since, scene.view, width);
  const right = position(picture.span.until, scene.view, width);
  if (right <= 0 || left >= width) return;
  const { rows } = scene;
  const ratio = window.devicePixelRatio || 1;
  const all = picture.image.height;
  for (const [first, last] of [[0, rows.pinned], [rows.pinned, all]]) {
    if (last <= first) continue;
    const [top, bottom] = [rows.tops[first] * ratio, rows.tops[last] * ratio];
    const { image } = picture;
    context.drawImage(image, 0, first, image.width, last - first, left, top, right - left, bottom - top);
  }
}

function hatch(context: CanvasRenderingContext2D, look: Theme, width: number, height: number, ratio: number): void {
  const pattern = hatching(context, look, ratio);
  if (!pattern) return;
  context.fillStyle = pattern;
  context.fillRect(0, 0, width, height);
}
