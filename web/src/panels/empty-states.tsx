/** What panels show instead of a drawing: long ranges to confirm, and times without a recording. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { isFiltered } from "../address";
import { formatCores } from "../cpulist";
import { duration, missingText, moment } from "../format";
import { printQuery } from "../query";
import { extent, recording, state, type Analysed } from "../state";
import { overviewGrid } from "../timeline/overview";
import type { Span } from "../types";

/** Hours of a large node are hundreds of millions of samples: they are read only on request. */
const MAX_AUTOMATIC_MS = 3_600_000;
/** The source of stack samples, as the recorder names it. */
const STACKS = "stacks";

/** Whether the range is too long to be read without confirmation, and a function that confirms it. */
export function useLongRange(of: Analysed): [boolean, () => void] {
  const [confirmed, setConfirmed] = useState(false);
  return [!of.selected && !confirmed && of.until - of.since > MAX_AUTOMATIC_MS, () => setConfirmed(true)];
}

export function ConfirmLongRange({ of, onConfirm }: { of: Analysed; onConfirm: () => void }): JSX.Element {
  return (
    <div class="placeholder" data-testid="confirm-range">
      <p>Select a time and cores in the heatmap, or click an incident, to see what ran there.</p>
      <button type="button" onClick={onConfirm}>
        analyse all {duration(of.until - of.since)}
      </button>
    </div>
  );
}

/** Why there is no data: the time was not recorded. Null where something was. */
export function unrecordedReason(of: Span): string | null {
  const whole = extent.value;
  if (whole && (of.until <= whole.since || of.since >= whole.until)) {
    const [since, until] = [whole.since, whole.until].map((at) => moment(at, state.value.utc));
    return `Outside of the recording, which has ${since} to ${until}.`;
  }
  const inside = recording.value?.gaps.some(([since, until]) => since <= of.since && until >= of.until);
  return inside ? "Nothing was recorded in this time." : null;
}

/** Why there are no stacks: nothing was recorded, or they are not sampled. Null where there may be some. */
export function noStacksReason(of: Span): string | null {
  return unrecordedReason(of) ?? noSourceReason(STACKS, "No stacks");
}

/** Why a source has no rows: it was unavailable. Null where it was not. */
export function noSourceReason(source: string, what: string): string | null {
  const missing = recording.value?.missing.find((each) => each.source === source);
  return missing ? `${what}: ${missingText(missing)}` : null;
}

/** Why there is no sample of a time with stacks: cores that the recording does not have, the filter, or idle cores. */
export function noSamplesReason({ filters, list }: Pick<Analysed, "filters" | "list">): string {
  const known = overviewGrid.value?.cpus;
  if (known && list && !list.some((cpu) => known.includes(cpu))) return `This recording has no ${formatCores(list)}.`;
  if (!isFiltered(filters)) return "No samples here: the cores were idle or offline.";
  return `No samples here match ${printQuery({ filters, cores: null })}: clear the filter, or select more.`;
}
