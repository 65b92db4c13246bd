/** The layout of a flame graph: from a model, a node that fills the width, and a size in pixels. Pure. */
import { pathTo, type FlameModel } from "./model";

export const ROW = 18;
/** Thinner than this is not drawn; it is still counted in what called it. */
export const THINNEST = 0.4;
/** More rows than these are drawn only as far as something in them can be seen: one sliver may be hundreds deep. */
const ROWS_ANYWAY = 40;
const SEEN = 2;

export interface Layout {
  /** The width of the drawing in CSS pixels. */
  pixels: number;
  /** Drawn nodes; parallel arrays, of which the first `count` places are used. */
  node: Int32Array;
  x: Float64Array;
  width: Float64Array;
  /** Rows from the outermost frame. */
  row: Int32Array;
  count: number;
  rows: number;
  /** Up to this row a frame is an ancestor of the one that fills the width; negative where that is left out. */
  ancestors: number;
  /** Rows below that hold nothing but slivers: zooming in shows them. */
  unseen: number;
}

/** Rows of a width: the ancestors of `root` fill it, what it called shares it. The first `top` rows are left out. */
export function layOut(model: FlameModel, root: number, pixels: number, top = 0): Layout {
  const path = [0, ...pathTo(model, root)];
  const node = new Int32Array(model.size);
  const x = new Float64Array(model.size);
  const width = new Float64Array(model.size);
  const row = new Int32Array(model.size);
  path.forEach((each, depth) => {
    node[depth] = each;
    width[depth] = pixels;
    row[depth] = depth;
  });
  const whole = model.width[root];
  const scale = whole > 0 ? pixels / whole : 0;
  let count = path.length;
  // Row by row: what is placed waits in the same arrays until its own children are.
  for (let at = path.length - 1; at < count; at++) {
    let left = x[at];
    for (let i = model.first[node[at]]; i < model.first[node[at] + 1]; i++) {
      const child = model.children[i];
      const wide = model.width[child] * scale;
      // The widest come first: the rest is thinner still.
      if (wide < THINNEST) break;
      node[count] = child;
      x[count] = left;
      width[count] = wide;
      row[count] = row[at] + 1;
      count++;
      left += wide;
    }
  }
  const deepest = row[count - 1] + 1;
  let rows = Math.min(deepest, Math.max(ROWS_ANYWAY, path.length));
  for (let i = 0; i < count; i++) if (width[i] >= SEEN && row[i] >= rows) rows = row[i] + 1;
  // They stand row by row.
  while (row[count - 1] >= rows) count--;
  const unseen = deepest - rows;
  for (let i = top; i < count; i++) row[i] -= top;
  const [drawn, ancestors] = [node.subarray(top, count), path.length - 1 - top];
  const edges = { x: x.subarray(top), width: width.subarray(top), row: row.subarray(top) };
  return { pixels, node: drawn, ...edges, count: count - top, rows: rows - top, ancestors, unseen };
}

/** The index into the layout of what is drawn there; -1 where nothing is. */
export function hit(layout: Layout, x: number, row: number): number {
  for (let i = 0; i < layout.count; i++) {
    if (layout.row[i] === row && x >= layout.x[i] && x < layout.x[i] + layout.width[i]) return i;
  }
  return -1;
}

/** The next drawn frame in a direction: in and out along the stack, before and after in the row. */
export function neighbour(
  model: FlameModel,
  layout: Layout,
  from: number,
  where: "in" | "out" | "before" | "after",
): number {
  if (from < 0) return layout.count > 0 ? Math.max(0, layout.ancestors) : -1;
  const { node, row, x } = layout;
  if (where === "out") {
    const above = indexOf(layout, model.parent[node[from]]);
    return above < 0 ? from : above;
  }
  let best = -1;
  for (let i = 0; i < layout.count; i++) {
    if (where === "in" && row[i] === row[from] + 1 && model.parent[node[i]] === node[from]) {
      if (best < 0 || layout.width[i] > layout.width[best]) best = i;
    } else if (where !== "in" && row[i] === row[from]) {
      const further = where === "after" ? x[i] > x[from] : x[i] < x[from];
      if (further && (best < 0 || Math.abs(x[i] - x[from]) < Math.abs(x[best] - x[from]))) best = i;
    }
  }
  return best < 0 ? from : best;
}

export function indexOf(layout: Layout, node: number): number {
  return layout.node.indexOf(node);
}
