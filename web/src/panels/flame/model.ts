/** The model of a flame graph: widths, children in drawing order, hidden frames, search. Pure. */
import type { FrameName } from "../../api";
import type { Flame } from "../../types";

export interface FlameModel {
  flame: Flame;
  size: number;
  /** What is left of each side without what is hidden, node by node; the first is the whole that shares are of. */
  now: Side;
  /** Null without a baseline. */
  base: Side | null;
  samples: ArrayLike<number>;
  /** Share of the whole picture; with a baseline, the mean of both sides, the only width that adds up everywhere. */
  width: Float64Array;
  depth: Int32Array;
  /** The children of node i, the widest first: `children[first[i]] .. children[first[i + 1] - 1]`. */
  first: Int32Array;
  children: Int32Array;
  deepest: number;
}

/** Microseconds of CPU time, inclusive. */
export type Side = ArrayLike<number>;

/** Hidden frames go with everything that they called; what called them shrinks. */
export function modelOf(flame: Flame, hidden: readonly string[] = []): FlameModel {
  const size = flame.label.length;
  const gone = hiddenNodes(flame, hidden);
  const left = gone.includes(1) ? (sums: readonly number[]): Side => without(flame, sums, gone) : (sums: Side) => sums;
  const now = left(flame.weight);
  const base = flame.differential ? left(flame.base_weight) : null;
  const sidesWithTime = Number(now[0] > 0) + Number(base !== null && base[0] > 0);
  const width = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    const both = shareOf(now, i) + (base ? shareOf(base, i) : 0);
    width[i] = base ? both / Math.max(1, sidesWithTime) : both;
  }
  const depth = new Int32Array(size);
  let deepest = 0;
  for (let i = 1; i < size; i++) {
    depth[i] = depth[flame.parent[i]] + 1;
    if (!gone[i] && depth[i] > deepest) deepest = depth[i];
  }
  const samples = left(flame.samples_of);
  return { flame, size, now, base, samples, width, depth, ...childrenOf(flame, width), deepest };
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

function childrenOf(flame: Flame, width: Float64Array): Pick<FlameModel, "first" | "children"> {
  const size = width.length;
  const first = new Int32Array(size + 1);
  for (let i = 1; i < size; i++) first[flame.parent[i] + 1]++;
  for (let i = 0; i < size; i++) first[i + 1] += first[i];
  const children = new Int32Array(Math.max(0, size - 1));
  const next = first.slice(0, size);
  for (let i = 1; i < size; i++) children[next[flame.parent[i]]++] = i;
  const names = flame.labels.name;
  const order = (a: number, b: number): number =>
    width[b] - width[a] || (names[flame.label[a]] < names[flame.label[b]] ? -1 : 1);
  for (let i = 0; i < size; i++) {
    if (first[i + 1] - first[i] > 1) children.subarray(first[i], first[i + 1]).sort(order);
  }
  return { first, children };
}

export function nameOf(model: FlameModel, node: number): string {
  return model.flame.labels.name[model.flame.label[node]];
}

export function frameOf(model: FlameModel, node: number): FrameName {
  const { labels, label } = model.flame;
  const at = label[node];
  return { name: labels.name[at], module: labels.module[at], kind: labels.kind[at] };
}

/** From the process down to a node; the whole is no part of it. */
export function pathTo(model: FlameModel, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at !== 0; at = model.flame.parent[at]) path.push(at);
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
  nodes: number;
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
  const { flame, size, width, now, base } = model;
  const matches = matcher(pattern);
  const labels = Uint8Array.from(flame.labels.name, (name) => (matches(name) ? 1 : 0));
  const inside = new Uint8Array(size);
  const below = new Uint8Array(size);
  below[root] = 1;
  const found = { nodes: 0, share: 0, before: 0, zoomed: 0 };
  for (let i = 1; i < size; i++) {
    if (width[i] === 0) continue;
    const above = flame.parent[i];
    const hit = labels[flame.label[i]] === 1;
    if (below[above]) below[i] = 1;
    if (hit) found.nodes++;
    if (hit && !inside[above]) {
      found.share += shareOf(now, i);
      if (base) found.before += shareOf(base, i);
      if (below[i]) found.zoomed += shareOf(now, i, root);
    }
    inside[i] = hit || inside[above] ? 1 : 0;
  }
  // What is zoomed into may itself be part of a match.
  return { labels, ...found, before: base && found.before, zoomed: inside[root] ? 1 : found.zoomed };
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
  const { flame, now, base } = model;
  const labels = flame.labels.name.length;
  const [own, ownBase] = [ownSums(flame, now), base && ownSums(flame, base)];
  const total = totals(flame, now);
  const share = (value: number, of: number): number => (of > 0 ? value / of : 0);
  const rows: OwnTime[] = [];
  for (let label = 0; label < labels; label++) {
    if (!["kernel", "user", "jit"].includes(flame.labels.kind[label])) continue;
    const after = share(own[label], now[0]);
    const before = base && ownBase ? share(ownBase[label], base[0]) : 0;
    if (after === 0 && before === 0) continue;
    rows.push({
      frame: { name: flame.labels.name[label], module: flame.labels.module[label], kind: flame.labels.kind[label] },
      own: after,
      total: share(total[label], now[0]),
      grown: after - before,
    });
  }
  const rank = (row: OwnTime): number => (flame.differential ? Math.abs(row.grown) : row.own);
  return rows.sort((a, b) => rank(b) - rank(a)).slice(0, most);
}

function ownSums(flame: Flame, side: Side): Float64Array {
  const sums = new Float64Array(flame.labels.name.length);
  for (let i = 0; i < side.length; i++) {
    sums[flame.label[i]] += side[i];
    if (i > 0) sums[flame.label[flame.parent[i]]] -= side[i];
  }
  return sums;
}

/** Inclusive time by label; a function that calls itself counts once. */
function totals(flame: Flame, side: Side): Float64Array {
  const sums = new Float64Array(flame.labels.name.length);
  for (let i = 1; i < flame.label.length; i++) {
    const label = flame.label[i];
    let above = flame.parent[i];
    while (above !== 0 && flame.label[above] !== label) above = flame.parent[above];
    if (above === 0) sums[label] += side[i];
  }
  return sums;
}
