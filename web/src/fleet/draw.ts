/** Puts the nodes on a canvas: one square each, as strong as its value. */
import { hatching } from "../timeline/hatch";
import { blend, css, hueOf, rgb, type Rgb, type Theme } from "../theme";
import type { FleetMeasure } from "../types";
import { strength, type Group } from "./grouping";
import { corner, type Layout, type Place } from "./layout";

/** There are no more colours than this; cells of one step are one path. */
const STEPS = 32;
/** The least that is above zero can be seen. */
const FAINT = 0.22;
const FADED = 0.72;

export interface Scene {
  width: number;
  layout: Layout;
  groups: Group[];
  values: Float32Array;
  measure: FleetMeasure;
  look: Theme;
  /** What is drawn: hour, measure and grouping. */
  key: string;
  /** The group that is selected: the others fade. -1 is none. */
  picked: number;
  selected: Place | null;
  cursor: Place | null;
}

/** The colour of a strength; `look.line` is a node at zero. */
export function cellColour(share: number, measure: FleetMeasure, look: Theme): Rgb {
  const calm = rgb(look.line);
  const full = measure.hue === "" ? look.ink : rgb(hueOf(measure.hue));
  return share <= 0 ? calm : blend(calm, full, FAINT + (1 - FAINT) * share);
}

export function drawNodes(canvas: HTMLCanvasElement, scene: Scene): void {
  const { layout, look, width } = scene;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(layout.height * ratio));
  const pen = canvas.getContext("2d", { alpha: false });
  if (!pen) return;
  pen.fillStyle = css(look.page);
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const side = layout.size > 5 ? layout.size - 1 : layout.size - 0.5;
  const paths = Array.from({ length: STEPS + 1 }, () => new Path2D());
  const silent = new Path2D();
  scene.groups.forEach((group, i) => {
    const { top } = layout.bands[i];
    for (let position = 0; position < group.nodes.length; position++) {
      const row = Math.floor(position / layout.columns);
      const share = strength(scene.values[group.nodes[position]], scene.measure);
      // One above zero never looks like zero.
      const path = share === null ? silent : paths[share > 0 ? Math.max(1, Math.round(share * STEPS)) : 0];
      path.rect((position - row * layout.columns) * layout.size, top + row * layout.size, side, side);
    }
  });
  paths.forEach((path, step) => {
    pen.fillStyle = css(cellColour(step / STEPS, scene.measure, look));
    pen.fill(path);
  });
  pen.fillStyle = hatching(pen, look, ratio) ?? look.hatch;
  pen.fill(silent);
  if (scene.picked >= 0) fadeOthers(pen, scene);
  outline(pen, scene.selected, scene, look.accent, 3);
  outline(pen, scene.cursor, scene, css(look.ink), 2);
  // For tests and benchmarks: how large a cell is, how many nodes are drawn, and by what.
  canvas.dataset.size = String(layout.size);
  canvas.dataset.nodes = String(scene.groups.reduce((sum, group) => sum + group.nodes.length, 0));
  canvas.dataset.drawnBy = scene.key;
}

function fadeOthers(pen: CanvasRenderingContext2D, { layout, look, width, picked }: Scene): void {
  pen.fillStyle = css(look.page, FADED);
  layout.bands.forEach((band, i) => {
    if (i !== picked) pen.fillRect(0, band.top, width, band.height);
  });
}

function outline(
  pen: CanvasRenderingContext2D,
  place: Place | null,
  { layout }: Scene,
  colour: string,
  thick: number,
): void {
  if (!place) return;
  const { x, y } = corner(layout, place);
  pen.strokeStyle = colour;
  pen.lineWidth = thick;
  pen.strokeRect(x - 1, y - 1, layout.size + 1, layout.size + 1);
}
