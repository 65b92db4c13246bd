/** A finding as steps to walk through: each link of its chain with the time and core of its evidence. Pure. */
import type { ChainLink, Evidence, Finding, Remedy, Span } from "../types";
import { chainOf } from "./chain";

export interface StoryStep {
  role: ChainLink["role"] | "remedy";
  text: string;
  /** What the timeline shows; null is what was diagnosed as a whole. */
  span: Span | null;
  cpu: number | null;
  evidence: Evidence[];
  remedies: Remedy[];
}

/** From the symptom to the remedies, which are one step. */
export function storyOf(finding: Finding): StoryStep[] {
  const steps = chainOf(finding).map(stepOf);
  const { remedies } = finding;
  if (remedies.length > 0) {
    const text = remedies[0].text || remedies[0].id;
    steps.push({ role: "remedy", text, span: null, cpu: null, evidence: [], remedies });
  }
  return steps;
}

function stepOf(link: ChainLink): StoryStep {
  const [seen] = [...link.evidence].sort(byPrecision) as (Evidence | undefined)[];
  const span = seen ? { since: seen.since_ms, until: seen.until_ms } : { since: link.at_ms, until: link.at_ms + 1000 };
  return { role: link.role, text: link.text, span, cpu: seen?.cpu ?? null, evidence: link.evidence, remedies: [] };
}

/** The shortest time says best when to look, of equals the one that names a core. */
function byPrecision(a: Evidence, b: Evidence): number {
  const length = (of: Evidence): number => of.until_ms - of.since_ms;
  return length(a) - length(b) || Number(a.cpu === null) - Number(b.cpu === null);
}

/** The step after a direction (1 or -1), from 1 on; null beyond either end. 0 is before the first. */
export function stepAfter(step: number, direction: 1 | -1, steps: number): number | null {
  const next = step + direction;
  return next >= 1 && next <= steps ? next : null;
}
