/** Flame graphs for tests, from folded stacks as people write them: `app;read;vfs_read` and a weight. */
import type { Flame } from "../src/types";

/** Kernel frames end with `_k`, as the kernel's own list does it; a stack begins with the thread's name. */
export function flameOf(stacks: Record<string, number>, base?: Record<string, number>): Flame {
  const names: string[] = ["all"];
  const kinds: string[] = ["all"];
  const labelOf = new Map<string, number>();
  const nodes = new Map<string, number>([["", 0]]);
  const [label, parent, weight, baseWeight, state] = [[0], [0], [0], [0], [0]];

  const labelled = (name: string, kind: string): number => {
    const key = `${kind} ${name}`;
    if (!labelOf.has(key)) {
      labelOf.set(key, names.length);
      names.push(name);
      kinds.push(kind);
    }
    return labelOf.get(key)!;
  };
  const add = (stack: string, value: number, into: number[]): void => {
    into[0] += value;
    let path = "";
    let above = 0;
    stack.split(";").forEach((frame, depth) => {
      path += `;${frame}`;
      if (!nodes.has(path)) {
        const kind = depth === 0 ? "comm" : frame.endsWith("_k") ? "kernel" : "user";
        nodes.set(path, label.length);
        label.push(labelled(frame.replace(/_k$/, ""), kind));
        parent.push(above);
        weight.push(0);
        baseWeight.push(0);
        state.push(kind === "comm" ? 0 : kind === "kernel" ? 1 : 2);
      }
      above = nodes.get(path)!;
      into[above] += value;
    });
  };
  for (const [stack, value] of Object.entries(stacks)) add(stack, value, weight);
  for (const [stack, value] of Object.entries(base ?? {})) add(stack, value, baseWeight);
  const own = ownOf(parent, weight);
  const baseOwn = ownOf(parent, baseWeight);
  const byLabel = (values: number[]): number[] => {
    const sums = names.map(() => 0);
    values.forEach((value, i) => (sums[label[i]] += value));
    return sums;
  };
  const calledByItself = (node: number): boolean => {
    for (let at = parent[node]; at !== 0; at = parent[at]) if (label[at] === label[node]) return true;
    return false;
  };
  return {
    since: 0,
    until: 1000,
    samples: weight[0],
    weight_us: weight[0],
    base_since: null,
    base_until: null,
    baseline: base ? "before" : "",
    base_samples: baseWeight[0],
    base_weight_us: baseWeight[0],
    blind_spots: [],
    differential: base !== undefined,
    labels: {
      name: names,
      module: names.map(() => ""),
      kind: kinds,
      own: byLabel(own),
      total: byLabel(weight.map((value, i) => (calledByItself(i) ? 0 : value))),
      base_own: base ? byLabel(baseOwn) : [],
    },
    label,
    parent,
    weight,
    own,
    samples_of: weight,
    base_weight: base ? baseWeight : [],
    base_own: base ? baseOwn : [],
    state,
    states: ["", "system", "user"],
    dropped: 0,
    changes: [],
  };
}

function ownOf(parent: number[], sums: number[]): number[] {
  const own = [...sums];
  for (let i = 1; i < sums.length; i++) own[parent[i]] -= sums[i];
  return own;
}

/** A tree of exactly so many nodes, wide and deep as those of real nodes are. */
export function largeFlame(size: number): Flame {
  const stacks: Record<string, number> = {};
  const depth = 25;
  for (let i = 0; i * depth < size - 1; i++) {
    const frames = Array.from({ length: depth }, (_, level) => `f${i}_${level}`);
    stacks[[`thread${i}`, ...frames.slice(0, depth - 1)].join(";")] = 1 + (i % 7);
  }
  return flameOf(stacks);
}

/** What work on a tree costs, in readings of it: times are those of this machine now, however busy it is. */
export function costInReadings(flame: Flame, work: () => void): number {
  const text = JSON.stringify(flame);
  const reading = fastest(() => JSON.parse(text) as Flame);
  return fastest(work) / reading;
}

function fastest(work: () => unknown): number {
  const times = Array.from({ length: 9 }, () => {
    const began = performance.now();
    work();
    return performance.now() - began;
  });
  return Math.min(...times);
}
