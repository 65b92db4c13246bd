/** The model of a flame graph: widths, children in drawing order, hidden frames, search. Pure. */
import type { FrameName } from "../../api";
import type { Flame } from "../../types";

/** Frames merged by path, parents first; node 0 is the whole. Sums are inclusive. */
export interface CallTree {
  label: ArrayLike<number>;
  parent: ArrayLike<number>;
  /** An index into `flame.states`. */
  state: ArrayLike<number>;
  /** What is left of each side without what is hidden, node by node; the first is the whole that shares are of. */
  now: Side;
  /** Null without a baseline. */
  base: Side | null;
  /** The time in a node itself, without what it called (frames that are too thin to be drawn among it). */
  own: Side;
  baseOwn: Side | null;
  samples: ArrayLike<number>;
}

export interface FlameModel extends CallTree {
  flame: Flame;
  size: number;
  /** Share of the whole picture; with a baseline, the mean of both sides, the only width that adds up everywhere. */
  width: Float64Array;
  depth: Int32Array;
  /** The children of node i, the widest first: `children[first[i]] .. children[first[i + 1] - 1]`. */
  first: Int32Array;
  children: Int32Array;
  deepest: number;
  functions: FunctionTimes;
  /** The children of a node are its callers: in an inverted tree, and above the function of a sandwich. */
  callers: boolean;
}

/** By label, over all its places. */
export interface FunctionTimes {
  own: Side;
  ownBase: Side | null;
  /** A function that calls itself counts once. */
  total: Side;
  /** Nodes that are left without what is hidden. */
  places: Int32Array;
  /** The part of `own` in places that are too thin to be drawn. Unknown, and so 0, while something is hidden. */
  thin: Float64Array;
  thinBase: Float64Array | null;
}

/** Microseconds of CPU time, inclusive. */
export type Side = ArrayLike<number>;

/** Hidden frames go with everything that they called; what called them shrinks. */
export function modelOf(flame: Flame, hidden: readonly string[] = []): FlameModel {
  const gone = hiddenNodes(flame, hidden);
  const some = gone.includes(1);
  const left = (sums: readonly number[]): Side => (some ? without(flame, sums, gone) : sums);
  const shown = (own: readonly number[]): Side => (some ? own.map((value, i) => (gone[i] ? 0 : value)) : own);
  const { label, parent, state, differential } = flame;
  const tree: CallTree = {
    label,
    parent,
    state,
    now: left(flame.weight),
    base: differential ? left(flame.base_weight) : null,
    own: shown(flame.own),
    baseOwn: differential ? shown(flame.base_own) : null,
    samples: left(flame.samples_of),
  };
  return arrange(flame, tree, functionTimes(flame, tree, some), false);
}

/** The model of any tree of a flame graph's frames. */
export function arrange(flame: Flame, tree: CallTree, functions: FunctionTimes, callers: boolean): FlameModel {
  const { label, parent, now, base } = tree;
  const size = label.length;
  const sidesWithTime = Number(now[0] > 0) + Number(base !== null && base[0] > 0);
  const width = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    const both = shareOf(now, i) + (base ? shareOf(base, i) : 0);
    width[i] = base ? both / Math.max(1, sidesWithTime) : both;
  }
  const depth = new Int32Array(size);
  let deepest = 0;
  for (let i = 1; i < size; i++) {
    depth[i] = depth[parent[i]] + 1;
    if (width[i] > 0 && depth[i] > deepest) deepest = depth[i];
  }
  const names = flame.labels.name;
  const byWidth = (a: number, b: number): number =>
    width[b] - width[a] || (names[label[a]] < names[label[b]] ? -1 : 1);
  return { flame, ...tree, size, width, depth, ...childrenOf(parent, byWidth), deepest, functions, callers };
}

/** A node's part of another node (of the whole where none is given). */
export function shareOf(side: Side, node: number, of = 0): number {
  return side[of] > 0 ? side[node] / side[of] : 0;
}

function hiddenNodes(flame: Flame, hidden: readonly string[]): Uint8Array {
  const gone = new Uint8Array(flame.label.length);
  if (hidden.length === 0) return gone;
  const names = new Set(hidden);
  const labels = flame.labels.name.map((name) => names.has(name));
  // Parents come first, so one pass reaches everything below.
  for (let i = 1; i < gone.length; i++) gone[i] = labels[flame.label[i]] || gone[flame.parent[i]] ? 1 : 0;
  return gone;
}

/** Sums without what is hidden: it is nothing, and what called it is smaller by it. */
function without(flame: Flame, sums: readonly number[], gone: Uint8Array): Side {
  const left = Float64Array.from(sums);
  for (let i = 1; i < left.length; i++) {
    if (!gone[i]) continue;
    left[i] = 0;
    if (gone[flame.parent[i]]) continue;
    for (let above = flame.parent[i]; ; above = flame.parent[above]) {
      left[above] -= sums[i];
      if (above === 0) break;
    }
  }
  return left;
}

function childrenOf(
  parent: ArrayLike<number>,
  order: (a: number, b: number) => number,
): Pick<FlameModel, "first" | "children"> {
  const size = parent.length;
  const first = new Int32Array(size + 1);
  for (let i = 1; i < size; i++) first[parent[i] + 1]++;
  for (let i = 0; i < size; i++) first[i + 1] += first[i];
  const children = new Int32Array(Math.max(0, size - 1));
  const next = first.slice(0, size);
  for (let i = 1; i < size; i++) children[next[parent[i]]++] = i;
  for (let i = 0; i < size; i++) {
    if (first[i + 1] - first[i] > 1) children.subarray(first[i], first[i + 1]).sort(order);
  }
  return { first, children };
}

export function nameOf(model: FlameModel, node: number): string {
  return model.flame.labels.name[model.label[node]];
}

export function frameOf(model: FlameModel, node: number): FrameName {
  return frameOfLabel(model.flame, model.label[node]);
}

function frameOfLabel({ labels }: Flame, label: number): FrameName {
  return { name: labels.name[label], module: labels.module[label], kind: labels.kind[label] };
}

/** The label of a frame; -1 where it is not in the graph. */
export function labelOf({ flame: { labels } }: FlameModel, frame: FrameName | null): number {
  if (frame === null) return -1;
  const { name, module, kind } = frame;
  return labels.name.findIndex((each, i) => each === name && labels.module[i] === module && labels.kind[i] === kind);
}

/** From the outermost to a node (the process, or in a tree of callers the function); the whole is no part of it. */
export function pathTo(model: FlameModel, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at !== 0; at = model.parent[at]) path.push(at);
  return path.reverse();
}

/** The node that these names lead to, as far as they lead anywhere. */
export function nodeAt(model: FlameModel, names: readonly string[]): number {
  let node = 0;
  for (const name of names) {
    const found = childNodes(model, node).find((child) => nameOf(model, child) === name && model.width[child] > 0);
    if (found === undefined) break;
    node = found;
  }
  return node;
}

export function childNodes(model: FlameModel, node: number): number[] {
  return Array.from(model.children.subarray(model.first[node], model.first[node + 1]));
}

export interface Matches {
  /** For each label, whether it matches. */
  labels: Uint8Array;
  /** The nodes that match, the widest first. */
  nodes: Int32Array;
  /** The part of the time that is in matching frames, nested ones counted once. */
  share: number;
  /** The same of the baseline; null without one. */
  before: number | null;
  /** The same within the frame that fills the width. */
  zoomed: number;
}

/** A pattern is a regular expression where it is one, else plain text; case doesn't matter. */
export function matcher(pattern: string): (name: string) => boolean {
  try {
    const expression = new RegExp(pattern, "i");
    return (name) => expression.test(name);
  } catch {
    const plain = pattern.toLowerCase();
    return (name) => name.toLowerCase().includes(plain);
  }
}

export function search(model: FlameModel, pattern: string, root = 0): Matches | null {
  if (pattern === "") return null;
  const { flame, label, parent, size, width, now, base } = model;
  const matches = matcher(pattern);
  const labels = Uint8Array.from(flame.labels.name, (name) => (matches(name) ? 1 : 0));
  const inside = new Uint8Array(size);
  const below = new Uint8Array(size);
  below[root] = 1;
  const nodes: number[] = [];
  const found = { share: 0, before: 0, zoomed: 0 };
  for (let i = 1; i < size; i++) {
    if (width[i] === 0) continue;
    const above = parent[i];
    const hit = labels[label[i]] === 1;
    if (below[above]) below[i] = 1;
    if (hit) nodes.push(i);
    if (hit && !inside[above]) {
      found.share += shareOf(now, i);
      if (base) found.before += shareOf(base, i);
      if (below[i]) found.zoomed += shareOf(now, i, root);
    }
    inside[i] = hit || inside[above] ? 1 : 0;
  }
  // What is zoomed into may itself be part of a match.
  const widest = Int32Array.from(nodes).sort((a, b) => width[b] - width[a] || a - b);
  return { labels, nodes: widest, ...found, before: base && found.before, zoomed: inside[root] ? 1 : found.zoomed };
}

/** How much a node's share grew against the baseline; 0 without one. */
export function growth({ now, base }: FlameModel, node: number): number {
  return base ? shareOf(now, node) - shareOf(base, node) : 0;
}

export interface OwnTime {
  frame: FrameName;
  own: number;
  total: number;
  grown: number;
}

/** Functions by the time in themselves, the most first; shares are of what is not hidden. */
export function topFunctions(model: FlameModel, most: number): OwnTime[] {
  const { flame, now, base, functions } = model;
  const share = (value: number, of: number): number => (of > 0 ? value / of : 0);
  const rows: OwnTime[] = [];
  for (let label = 0; label < flame.labels.name.length; label++) {
    if (!["kernel", "user", "jit"].includes(flame.labels.kind[label])) continue;
    const after = share(functions.own[label], now[0]);
    const before = base && functions.ownBase ? share(functions.ownBase[label], base[0]) : 0;
    if (after === 0 && before === 0) continue;
    rows.push({
      frame: frameOfLabel(flame, label),
      own: after,
      total: share(functions.total[label], now[0]),
      grown: after - before,
    });
  }
  const rank = (row: OwnTime): number => (flame.differential ? Math.abs(row.grown) : row.own);
  return rows.sort((a, b) => rank(b) - rank(a)).slice(0, most);
}

function functionTimes({ labels }: Flame, tree: CallTree, hidden: boolean): FunctionTimes {
  const { label, parent, now, base, own, baseOwn } = tree;
  const size = labels.name.length;
  const byLabel = (side: Side): Float64Array => {
    const sums = new Float64Array(size);
    for (let i = 0; i < side.length; i++) sums[label[i]] += side[i];
    return sums;
  };
  const [drawn, drawnBase] = [byLabel(own), baseOwn && byLabel(baseOwn)];
  const total = new Float64Array(size);
  const places = new Int32Array(size);
  for (let i = 1; i < label.length; i++) {
    if (now[i] === 0 && !base?.[i]) continue;
    places[label[i]]++;
    if (!hidden) continue;
    let above = parent[i];
    while (above !== 0 && label[above] !== label[i]) above = parent[above];
    if (above === 0) total[label[i]] += now[i];
  }
  const nothing = { thin: new Float64Array(size), thinBase: base && new Float64Array(size) };
  if (hidden) return { own: drawn, ownBase: drawnBase, total, places, ...nothing };
  const rest = (all: readonly number[], some: Float64Array): Float64Array => some.map((value, i) => all[i] - value);
  return {
    own: labels.own,
    ownBase: base && labels.base_own,
    total: labels.total,
    places,
    thin: rest(labels.own, drawn),
    thinBase: drawnBase && rest(labels.base_own, drawnBase),
  };
}
