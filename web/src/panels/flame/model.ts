/** A flame graph as the browser works with it: widths, children in drawing order, what is hidden. Pure. */
import type { FrameName } from "../../api";
import type { Flame } from "../../wire";

export interface FlameModel {
  flame: Flame;
  size: number;
  /** Share of the whole picture; with a baseline, the mean of both sides, the only width that adds up everywhere. */
  width: Float64Array;
  depth: Int32Array;
  /** The children of node i, the widest first: `children[first[i]] .. children[first[i + 1] - 1]`. */
  first: Int32Array;
  children: Int32Array;
  deepest: number;
}

/** Hidden frames go with everything that they called; what called them shrinks. */
export function modelOf(flame: Flame, hidden: readonly string[] = []): FlameModel {
  const size = flame.label.length;
  const gone = hiddenNodes(flame, hidden);
  const [now, base] = sides(flame, gone);
  const width = new Float64Array(size);
  const total = now[0];
  const baseTotal = base ? base[0] : 0;
  const sidesWithTime = Number(total > 0) + Number(baseTotal > 0);
  for (let i = 0; i < size; i++) {
    if (gone[i]) continue;
    let share = total > 0 ? now[i] / total : 0;
    if (base) share = (share + (baseTotal > 0 ? base[i] / baseTotal : 0)) / Math.max(1, sidesWithTime);
    width[i] = share;
  }
  const depth = new Int32Array(size);
  let deepest = 0;
  for (let i = 1; i < size; i++) {
    depth[i] = depth[flame.parent[i]] + 1;
    if (!gone[i] && depth[i] > deepest) deepest = depth[i];
  }
  return { flame, size, width, depth, ...childrenOf(flame, width), deepest };
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

/** The weights of both sides without what is hidden. */
function sides(flame: Flame, gone: Uint8Array): [ArrayLike<number>, ArrayLike<number> | null] {
  const base = flame.differential ? flame.base_weight : null;
  if (!gone.includes(1)) return [flame.weight, base];
  return [without(flame, flame.weight, gone), base && without(flame, base, gone)];
}

function without(flame: Flame, weight: readonly number[], gone: Uint8Array): Float64Array {
  const left = Float64Array.from(weight);
  for (let i = 1; i < left.length; i++) {
    const topmost = gone[i] && !gone[flame.parent[i]];
    if (!topmost) continue;
    for (let above = flame.parent[i]; ; above = flame.parent[above]) {
      left[above] -= weight[i];
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
  /** The part of the whole that is in matching frames, nested ones counted once. */
  share: number;
  nodes: number;
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

export function search(model: FlameModel, pattern: string): Matches | null {
  if (pattern === "") return null;
  const { flame, size, width } = model;
  const matches = matcher(pattern);
  const labels = Uint8Array.from(flame.labels.name, (name) => (matches(name) ? 1 : 0));
  const inside = new Uint8Array(size);
  let share = 0;
  let nodes = 0;
  for (let i = 1; i < size; i++) {
    if (width[i] === 0) continue;
    const hit = labels[flame.label[i]] === 1;
    if (hit) nodes++;
    if (hit && !inside[flame.parent[i]]) share += width[i];
    inside[i] = hit || inside[flame.parent[i]] ? 1 : 0;
  }
  return { labels, share, nodes };
}

/** How much a node's share grew against the baseline; 0 without one. */
export function growth({ flame }: FlameModel, node: number): number {
  if (!flame.differential) return 0;
  const now = flame.weight_us ? flame.weight[node] / flame.weight_us : 0;
  const before = flame.base_weight_us ? flame.base_weight[node] / flame.base_weight_us : 0;
  return now - before;
}

export interface OwnTime {
  frame: FrameName;
  own: number;
  total: number;
  grown: number;
}

/** Functions by the time in themselves, the most first. */
export function topFunctions(model: FlameModel, most: number): OwnTime[] {
  const { flame } = model;
  const labels = flame.labels.name.length;
  const [own, ownBase] = [ownSums(flame, flame.weight), ownSums(flame, flame.base_weight)];
  const total = totals(flame);
  const share = (value: number, of: number): number => (of > 0 ? value / of : 0);
  const rows: OwnTime[] = [];
  for (let label = 0; label < labels; label++) {
    if (!["kernel", "user", "jit"].includes(flame.labels.kind[label])) continue;
    const now = share(own[label], flame.weight_us);
    const before = share(ownBase[label], flame.base_weight_us);
    if (now === 0 && before === 0) continue;
    rows.push({
      frame: { name: flame.labels.name[label], module: flame.labels.module[label], kind: flame.labels.kind[label] },
      own: now,
      total: share(total[label], flame.weight_us),
      grown: now - before,
    });
  }
  const rank = (row: OwnTime): number => (flame.differential ? Math.abs(row.grown) : row.own);
  return rows.sort((a, b) => rank(b) - rank(a)).slice(0, most);
}

function ownSums(flame: Flame, weight: readonly number[]): Float64Array {
  const sums = new Float64Array(flame.labels.name.length);
  if (weight.length === 0) return sums;
  for (let i = 0; i < weight.length; i++) {
    sums[flame.label[i]] += weight[i];
    if (i > 0) sums[flame.label[flame.parent[i]]] -= weight[i];
  }
  return sums;
}

/** Inclusive time by label; a function that calls itself counts once. */
function totals(flame: Flame): Float64Array {
  const sums = new Float64Array(flame.labels.name.length);
  for (let i = 1; i < flame.label.length; i++) {
    const label = flame.label[i];
    let above = flame.parent[i];
    while (above !== 0 && flame.label[above] !== label) above = flame.parent[above];
    if (above === 0) sums[label] += flame.weight[i];
  }
  return sums;
}
