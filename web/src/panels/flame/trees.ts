/** Other trees of the same samples: inverted, and the callers and callees of one function. Pure. */
import { arrange, type CallTree, type FlameModel, type Side } from "./model";

/** Functions by their self time, with what called them below, out to the thread. Each sample is counted once. Where a
 * function is called through frames that are too thin to be drawn, its callers are not there. */
export function inverted(model: FlameModel): FlameModel {
  const { own, baseOwn, functions } = model;
  const ends: number[] = [];
  for (let i = 1; i < model.size; i++) if (own[i] > 0 || (baseOwn && baseOwn[i] > 0)) ends.push(i);
  const tree = new Merged(model);
  growCallers(tree, model, ends, { now: own, base: baseOwn, own: null, samples: ownSamples(model) });
  functions.thin.forEach((thin, label) => tree.addThin(label, thin, functions.thinBase?.[label] ?? 0));
  return tree.model(true);
}

/** Samples in nodes themselves: of what is not in drawn callees, the part that is not in thin ones either. */
function ownSamples({ size, parent, now, own, samples }: FlameModel): Float64Array {
  const [left, time] = [Float64Array.from(samples), Float64Array.from(now)];
  for (let i = 1; i < size; i++) {
    left[parent[i]] -= samples[i];
    time[parent[i]] -= now[i];
  }
  return left.map((many, i) => (time[i] > 0 ? (many * own[i]) / time[i] : 0));
}

export interface Sandwich {
  /** Node 1 is the function in both; in the first its callers are below it. */
  callers: FlameModel;
  callees: FlameModel;
}

/** What called a function and what it called, over all its places; a function that calls itself is counted once.
 * Null where the function is not in the graph. */
export function sandwich(model: FlameModel, label: number): Sandwich | null {
  const outermost = outermostPlaces(model, label);
  if (outermost.length === 0) return null;
  const callers = new Merged(model);
  growCallers(callers, model, outermost, { ...model, own: null });
  return { callers: callers.model(true), callees: mergeCallees(model, outermost) };
}

interface Sums {
  now: Side;
  base: Side | null;
  /** Null where nothing is a node's own: in a tree of callers. */
  own: Side | null;
  samples: ArrayLike<number>;
}

function outermostPlaces({ label: labels, parent, size, width }: FlameModel, label: number): number[] {
  const inside = new Uint8Array(size);
  const found: number[] = [];
  for (let i = 1; i < size; i++) {
    const here = labels[i] === label;
    if (here && !inside[parent[i]] && width[i] > 0) found.push(i);
    inside[i] = here || inside[parent[i]] ? 1 : 0;
  }
  return found;
}

/** From each of these nodes outwards; what the sums have of it goes along. */
function growCallers(tree: Merged, model: FlameModel, ends: readonly number[], sums: Sums): void {
  let alive = ends.length;
  const end = Int32Array.from(ends);
  const at = end.slice();
  const into = new Int32Array(alive);
  // Level by level, so that parents come first.
  while (alive > 0) {
    let left = 0;
    for (let i = 0; i < alive; i++) {
      const node = tree.child(into[i], at[i]);
      tree.add(node, at[i], sums, end[i]);
      const above = model.parent[at[i]];
      if (above === 0) continue;
      end[left] = end[i];
      at[left] = above;
      into[left++] = node;
    }
    alive = left;
  }
}

/** From each of these nodes inwards: what is below them, as one subtree. */
function mergeCallees(model: FlameModel, tops: readonly number[]): FlameModel {
  const tree = new Merged(model);
  const into = new Int32Array(model.size).fill(-1);
  for (const top of tops) into[top] = 0;
  for (let i = 1; i < model.size; i++) {
    const above = into[i] === 0 ? 0 : into[model.parent[i]];
    if (above < 0 || model.width[i] === 0) continue;
    into[i] = tree.child(above, i);
    tree.add(into[i], i, model, i);
  }
  return tree.model(false);
}

/** A tree that grows; the whole is that of the tree it is made of, so shares are of the same time. */
class Merged {
  private readonly of: FlameModel;
  private readonly labels: number;
  private readonly index = new Map<number, number>();
  private readonly label = [0];
  private readonly parent = [0];
  private readonly state = [0];
  /** The weight of what gave a node its state: the most counts where they differ. */
  private readonly heaviest = [0];
  private readonly now: number[];
  private readonly base: number[] | null;
  private readonly own = [0];
  private readonly samples: number[];

  constructor(of: FlameModel) {
    this.of = of;
    this.labels = of.flame.labels.name.length;
    this.now = [of.now[0]];
    this.base = of.base && [of.base[0]];
    this.samples = [of.samples[0]];
  }

  /** The child of a node with the label and state of another tree's node; made where there is none. */
  child(above: number, like: number): number {
    return this.named(above, this.of.label[like], this.of.state[like]);
  }

  private named(above: number, label: number, state: number): number {
    const key = above * this.labels + label;
    const known = this.index.get(key);
    if (known !== undefined) return known;
    const node = this.label.push(label) - 1;
    this.parent.push(above);
    this.state.push(state);
    this.heaviest.push(0);
    this.own.push(0);
    this.now.push(0);
    this.base?.push(0);
    this.samples.push(0);
    this.index.set(key, node);
    return node;
  }

  add(node: number, like: number, sums: Sums, from: number): void {
    const weight = sums.now[from];
    this.now[node] += weight;
    if (this.base && sums.base) this.base[node] += sums.base[from];
    if (sums.own) this.own[node] += sums.own[from];
    this.samples[node] += sums.samples[from];
    if (weight > this.heaviest[node]) {
      this.heaviest[node] = weight;
      this.state[node] = this.of.state[like];
    }
  }

  /** A function's time in places that are not drawn: its callers are unknown. */
  addThin(label: number, now: number, base: number): void {
    if (now <= 0 && base <= 0) return;
    const { flame } = this.of;
    const state = flame.states.indexOf(flame.labels.kind[label] === "kernel" ? "system" : "user");
    const node = this.named(0, label, Math.max(0, state));
    this.now[node] += now;
    if (this.base) this.base[node] += base;
    if (this.now[0] > 0) this.samples[node] += (now * this.samples[0]) / this.now[0];
  }

  model(callers: boolean): FlameModel {
    const { label, parent, state, now, base, own } = this;
    const samples = this.samples.map(Math.round);
    const tree: CallTree = { label, parent, state, now, base, own, baseOwn: null, samples };
    return arrange(this.of.flame, tree, this.of.functions, callers);
  }
}
