/** Groups of nodes by an attribute, with what is worst in each. Pure, and fast for 10,000 nodes. */
import type { FleetMeasure } from "../types";
import type { Column } from "./columns";
import type { Order } from "./address";

export interface Group {
  /** The attribute's value; empty where it is not set, null for several values together. */
  value: string | null;
  /** How many values are in it. */
  merged: number;
  /** Indices of its nodes, in the order of the drawing. */
  nodes: Uint32Array;
  /** Nodes that sent nothing in this hour. */
  silent: number;
  /** The greatest value and its node; -1 where no node sent anything. */
  worst: number;
  worstNode: number;
  /** Nodes above zero. */
  affected: number;
}

/** More groups are more than can be read: the smallest become one. */
export const MAX_GROUPS = 40;

const natural = new Intl.Collator("en", { numeric: true });

/** Nodes are in the order of their names already. */
export function groupNodes(column: Column | null, values: Float32Array, order: Order): Group[] {
  const members = membersOf(column, values.length);
  const kept = mergeSmallest(members);
  const groups = kept.map(({ value, merged, nodes }) => describe(value, merged, nodes, values));
  if (order === "worst") {
    for (const group of groups) group.nodes = worstFirst(group.nodes, values);
    return groups.sort((a, b) => rank(b) - rank(a) || b.affected - a.affected || compare(a, b));
  }
  return groups.sort(compare);
}

interface Members {
  value: string | null;
  merged: number;
  nodes: Uint32Array;
}

function membersOf(column: Column | null, count: number): Members[] {
  if (column === null || column.codes === null) {
    const nodes = Uint32Array.from({ length: count }, (_, node) => node);
    return count === 0 ? [] : [{ value: column?.values[0] ?? "", merged: 1, nodes }];
  }
  const { codes, values } = column;
  const sizes = new Uint32Array(values.length + 1);
  for (let node = 0; node < count; node++) sizes[codes[node]]++;
  const nodes = Array.from(sizes, (size) => new Uint32Array(size));
  sizes.fill(0);
  for (let node = 0; node < count; node++) nodes[codes[node]][sizes[codes[node]]++] = node;
  return nodes
    .map((each, code) => ({ value: code === 0 ? "" : values[code - 1], merged: 1, nodes: each }))
    .filter((each) => each.nodes.length > 0);
}

function mergeSmallest(groups: Members[]): Members[] {
  if (groups.length <= MAX_GROUPS) return groups;
  const bySize = [...groups].sort((a, b) => b.nodes.length - a.nodes.length || natural.compare(label(a), label(b)));
  const rest = bySize.splice(MAX_GROUPS - 1);
  const nodes = Uint32Array.from(rest.flatMap((each) => [...each.nodes])).sort();
  return [...bySize, { value: null, merged: rest.length, nodes }];
}

function describe(value: string | null, merged: number, nodes: Uint32Array, values: Float32Array): Group {
  let [worst, worstNode, silent, affected] = [NaN, -1, 0, 0];
  for (const node of nodes) {
    const one = values[node];
    if (Number.isNaN(one)) silent++;
    else {
      if (one > 0) affected++;
      if (worstNode < 0 || one > worst) [worst, worstNode] = [one, node];
    }
  }
  return { value, merged, nodes, silent, worst, worstNode, affected };
}

function worstFirst(nodes: Uint32Array, values: Float32Array): Uint32Array {
  const key = (node: number): number => (Number.isNaN(values[node]) ? -Infinity : values[node]);
  return Uint32Array.from(nodes).sort((a, b) => key(b) - key(a) || a - b);
}

function rank(group: Group): number {
  return group.worstNode < 0 ? -1 : group.worst;
}

/** By name; what is not set, and several together, last. */
function compare(a: Members, b: Members): number {
  return place(a) - place(b) || natural.compare(label(a), label(b));
}

function place(group: Members): number {
  return group.value === null ? 2 : group.value === "" ? 1 : 0;
}

export function label(group: Pick<Group, "value" | "merged">): string {
  if (group.value === null) return `${group.merged} other values`;
  return group.value === "" ? "not set" : group.value;
}

/** How strong the colour of a value is, 0 to 1; null where there is none. */
export function strength(value: number, measure: FleetMeasure): number | null {
  if (Number.isNaN(value)) return null;
  const size = Math.max(0, value);
  const share = measure.scale === "log" ? Math.log1p(scaled(size, measure)) / Math.log1p(SPREAD) : size / measure.full;
  return Math.min(1, share);
}

/** Values of a log scale are spread over as many steps, whatever their unit. */
const SPREAD = 100;

function scaled(value: number, measure: FleetMeasure): number {
  return (value / measure.full) * SPREAD;
}
