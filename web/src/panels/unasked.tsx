/** Where nothing is drawn: hours that nobody asked for yet, and times that were not recorded. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { duration, moment } from "../format";
import { extent, recording, state, type Analysed } from "../state";
import type { Span } from "../wire";

/** Hours of a large node are hundreds of millions of samples: they are read when somebody wants them. */
const LONGEST_UNASKED_MS = 3_600_000;

/** Whether this is more than what is read without being asked for, and how to ask. */
export function useUnasked(of: Analysed): [boolean, () => void] {
  const [asked, setAsked] = useState(false);
  return [!of.selected && !asked && of.until - of.since > LONGEST_UNASKED_MS, () => setAsked(true)];
}

export function Unasked({ of, onAsk }: { of: Analysed; onAsk: () => void }): JSX.Element {
  return (
    <div class="standby" data-testid="unasked">
      <p>Drag in the heatmap to select a time and cores, or click an incident: what ran there is drawn here.</p>
      <button type="button" onClick={onAsk}>
        draw all {duration(of.until - of.since)}
      </button>
    </div>
  );
}

/** A time without a recording says nothing, neither that all was quiet. Null where something was recorded. */
export function unrecordedWords(of: Span): string | null {
  const whole = extent.value;
  if (whole && (of.until <= whole.since || of.since >= whole.until)) {
    const [since, until] = [whole.since, whole.until].map((at) => moment(at, state.value.utc));
    return `The recording does not hold this time; it goes from ${since} to ${until}.`;
  }
  const inside = recording.value?.gaps.some(([since, until]) => since <= of.since && until >= of.until);
  return inside ? "Nothing was recorded in this time." : null;
}

/** Why nothing can be said about what ran: nothing was recorded then, or no stacks are taken. Null where it can. */
export function blindWords(of: Span): string | null {
  const missing = recording.value?.missing.find((each) => /stack|perf/i.test(each));
  return unrecordedWords(of) ?? (missing ? `There are no stacks: ${missing}` : null);
}
