/** The flame graph of the selection, and its difference to a baseline. */
import type { JSX } from "preact";
import { announce } from "../../a11y";
import { BASELINES, isFiltered } from "../../address";
import { api, flameQuery, type Baseline } from "../../api";
import { range } from "../../format";
import { Placeholder, useResource } from "../../resource";
import { change, flameScope, otherRecording, pickingBase, state, type Analysed } from "../../state";
import type { Flame } from "../../types";
import { ExportMenu } from "../export";
import type { Panel, PanelProps } from "../panel";
import { noSamplesReason, noStacksReason, ConfirmLongRange, useLongRange } from "../empty-states";
import { FlameControls, FlameGraph, hasTime, useFlameModel } from "./graph";
import { ACTIONS } from "./menu";

const FIRST_WAIT_MS = 250;
const BASELINE_LABELS: Record<Baseline, string> = {
  none: "nothing",
  before: "the same cores, before",
  others: "the other cores, at the same time",
  window: "another time",
  other: "the other recording",
};

function FlameBody({ of }: PanelProps): JSX.Element {
  return <FlameOf of={of} baseline="none" />;
}

function DifferenceBody({ of }: PanelProps): JSX.Element {
  const { baseline } = state.value;
  return (
    <>
      <BaselineLine of={of} />
      <FlameOf of={of} baseline={baseline === "none" ? "before" : baseline} />
    </>
  );
}

function FlameOf({ of, baseline }: { of: Analysed; baseline: Baseline }): JSX.Element {
  const [long, confirm] = useLongRange(of);
  const scope = flameScope(of, baseline);
  // Without a selection the timeline is drawn first.
  const wait = { delayMs: of.selected ? 0 : FIRST_WAIT_MS };
  const read = useResource(long ? null : flameQuery(scope), (signal) => api.flame(scope, signal), wait);
  const flame = read.value;
  const model = useFlameModel(flame);
  if (long) return <ConfirmLongRange of={of} onConfirm={confirm} />;
  const drawn = model !== null && hasTime(model);
  return (
    <div class="flame" aria-busy={read.loading} data-testid="flame" data-loading={read.loading}>
      <Placeholder of={read} what="the stacks" empty={!drawn && emptyReason(of, flame)} />
      {drawn && <FlameGraph model={model} actions={ACTIONS} />}
    </div>
  );
}

function emptyReason(of: Analysed, flame: Flame | null): string {
  if (flame && flame.weight_us > 0) return "All frames are hidden: show the hidden frames again.";
  const reason = noStacksReason(of);
  if (reason !== null) return reason;
  // A filter explains it; without one, blind spots come before an idle core.
  const spots = isFiltered(of.filters) ? "" : flame?.blind_spots.join("; ");
  return spots ? `No samples here: ${spots}` : noSamplesReason(of);
}

/** The next box that is drawn is the baseline; the selection stays. */
function pick(on: boolean): void {
  pickingBase.value = on;
  if (on) announce("drag in the heatmap over the time to compare with");
}

function BaselineLine({ of }: { of: Analysed }): JSX.Element {
  const { baseline, b0, b1, utc } = state.value;
  const chosen = baseline === "none" ? "before" : baseline;
  return (
    <p class="baseline-line">
      <label>
        against{" "}
        <select
          value={chosen}
          data-testid="baseline"
          onChange={(event) => {
            const wanted = event.currentTarget.value as Baseline;
            change({ baseline: wanted });
            if (wanted === "window" && b0 === null) pick(true);
            else pickingBase.value = false;
          }}
        >
          {BASELINES.filter((each) => each !== "none" && (each !== "other" || otherRecording.value)).map((each) => (
            <option key={each} value={each}>
              {BASELINE_LABELS[each]}
            </option>
          ))}
        </select>
      </label>
      {chosen === "window" && (
        <>
          <span>{b0 !== null && b1 !== null ? range(b0, b1, utc) : "none picked: the time before is used"}</span>
          <button
            type="button"
            aria-pressed={pickingBase.value}
            data-testid="pick-base"
            onClick={() => pick(!pickingBase.peek())}
          >
            {pickingBase.value ? "drag in the heatmap over the time to compare with" : "pick in the heatmap"}
          </button>
          <button type="button" onClick={() => change({ b0: of.since, b1: of.until })}>
            use the selection as the baseline
          </button>
        </>
      )}
      {chosen === "others" && of.list === null && (
        <span class="trouble">all cores are selected, so there are no others: select some cores</span>
      )}
    </p>
  );
}

function FlameTools({ of }: PanelProps): JSX.Element {
  const { tab, baseline } = state.value;
  const difference = tab === "difference";
  return (
    <>
      <FlameControls difference={difference} />
      <ExportMenu scope={flameScope(of, difference ? (baseline === "none" ? "before" : baseline) : "none")} />
    </>
  );
}

/** `/` goes to the search: of events where they are open, else of frames. */
export function focusSearch(): void {
  const { tab } = state.peek();
  if (tab !== "difference" && tab !== "events") change({ tab: "flame" }, "replace");
  // Before the next key: a frame later the first letter that is typed would be lost.
  queueMicrotask(() => document.querySelector<HTMLInputElement>(".tab-tools [type=search]")?.focus());
}

export const flamePanel: Panel = { tab: "flame", title: "Flame", key: "1", Body: FlameBody, Tools: FlameTools };
export const differencePanel: Panel = {
  tab: "difference",
  title: "Difference",
  key: "2",
  Body: DifferenceBody,
  Tools: FlameTools,
};
