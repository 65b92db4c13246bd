/** The search in the graphs that are drawn: what it found, and the match that it stands at. Not part of the address. */
import { signal } from "@preact/signals";
import type { FlameModel, Matches } from "./model";

export interface FoundIn {
  model: FlameModel;
  /** The node that fills the width. */
  root: number;
  matches: Matches;
}

/** One for each graph that is drawn; empty without a search. */
export const found = signal<readonly FoundIn[]>([]);

/** Which match is shown, counted over all graphs; `turn` differs each time one is gone to. */
export const standing = signal<{ index: number; turn: number } | null>(null);

export function matchCount(all: readonly FoundIn[]): number {
  return all.reduce((sum, each) => sum + each.matches.nodes.length, 0);
}

/** To the next match (or so many further), around the end; the first is the widest. */
export function stepMatch(by: number): void {
  const many = matchCount(found.peek());
  if (many === 0) return;
  const now = standing.peek();
  const from = now?.index ?? (by > 0 ? -1 : 0);
  standing.value = { index: (((from + by) % many) + many) % many, turn: (now?.turn ?? 0) + 1 };
}

/** The graph and node of a match. */
export function matchAt(all: readonly FoundIn[], index: number): { model: FlameModel; node: number } | null {
  let left = index;
  for (const { model, matches } of all) {
    if (left < matches.nodes.length) return { model, node: matches.nodes[left] };
    left -= matches.nodes.length;
  }
  return null;
}
