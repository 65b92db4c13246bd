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
    labels: { name: names, module: names.map(() => ""), kind: kinds },
    label,
    parent,
    weight,
    samples_of: weight,
    base_weight: base ? baseWeight : [],
    state,
    states: ["", "system", "user"],
    dropped: 0,
    changes: [],
  };
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
