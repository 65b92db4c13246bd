/** Moves the timeline along a diagnosis, which stays: to a piece of evidence, to a step of its story, and back. */
import { announce } from "../a11y";
import { revealAnswer, revealTimeline } from "../reveal";
import { analysed, change, extent, state, type PageState } from "../state";
import type { Evidence, Span } from "../types";
import { laneOf, lanesWith, placeOf } from "./chain";
import { current } from "./current";
import { stepAfter, storyOf, type StoryStep } from "./story";

/** Selects the time of a piece of evidence on its core (null: all), with some of the time around it, and opens the lane
 * that draws its value. */
export function followEvidence(span: Span, cpu: number | null, of: Evidence | null = null): void {
  const lanes = lanesWith(of && laneOf(of), state.peek().lanes);
  // One change, so that one key takes it back.
  change({ ...placed(span), cpus: cpu === null ? null : [cpu], ...pinned(), step: 0, lanes });
  revealTimeline();
}

/** Back to what was diagnosed. */
export function leaveEvidence(): void {
  const { d0, d1, dc } = state.peek();
  if (d0 === null || d1 === null) return;
  change({ ...placed({ since: d0, until: d1 }), cpus: dc, d0: null, d1: null });
}

/** The steps of the finding that comes first in the diagnosis that is shown. */
export function currentStory(): StoryStep[] {
  const first = current.value?.read.value?.findings.at(0);
  return first ? storyOf(first) : [];
}

/** The next (1) or previous (-1) step of the story. */
export function walkStory(direction: 1 | -1): void {
  const steps = currentStory();
  if (steps.length === 0) {
    announce(state.peek().s0 === null ? "open an incident first: press n" : "there is no finding to walk through");
    return;
  }
  const next = stepAfter(state.peek().step, direction, steps.length);
  if (next === null) {
    announce(direction > 0 ? "that was the last step" : "that was the first step");
    return;
  }
  const { role, text, span, cpu, evidence } = steps[next - 1];
  const pin = pinned();
  const whole = pin.d0 !== null && pin.d1 !== null ? { since: pin.d0, until: pin.d1 } : null;
  const to = span ?? whole;
  if (to === null) return;
  const lanes = evidence.map(laneOf).reduce((open, lane) => lanesWith(lane, open), state.peek().lanes);
  change({ ...placed(to), cpus: span === null ? pin.dc : cpu === null ? null : [cpu], ...pin, step: next, lanes });
  revealAnswer();
  announce(`step ${String(next)} of ${String(steps.length)}, ${role.replace("_", " ")}: ${text}`);
}

/** The selection of a time, and a view with some of the time around it. */
function placed(span: Span): Partial<PageState> {
  const { selected, shown } = placeOf(span, extent.peek());
  const moved = shown.until > shown.since ? { ...shown, last: null } : {};
  return { ...moved, s0: selected.since, s1: selected.until, root: [] };
}

/** What the diagnosis is of, before and while its evidence is followed. */
function pinned(): Pick<PageState, "d0" | "d1" | "dc"> {
  const { d0, d1, dc, cpus } = state.peek();
  const of = analysed.peek();
  return d0 === null && of ? { d0: of.since, d1: of.until, dc: cpus } : { d0, d1, dc };
}
