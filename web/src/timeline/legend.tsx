/** The legend, and the switch between the measures of the heatmap. */
import type { JSX } from "preact";
import { announce } from "../a11y";
import { isFiltered, MEASURES, SAMPLED_MEASURES, type Measure } from "../address";
import { change, filters, measured } from "../state";
import { STATES, type StateColour } from "../theme";

const NAMES: Record<Measure, string> = {
  unusual: "unusual",
  stall: "stall",
  deviation: "deviation",
  busy: "busiest",
  system: "system",
  softirq: "softirq",
  user: "user",
  steal: "steal",
  iowait: "iowait",
  wait: "run-queue wait",
};

const TITLES: Partial<Record<Measure, string>> = {
  unusual: "stalls, and fainter what is above the normal of its core",
  stall: "for how long the kernel, or tasks that waited, held a core without a pause",
  deviation: "how far the kernel's share is above the recent normal of its core",
  busy: "the state that took most of the worst second, and its share",
};

const UNSAMPLED = "what is unusual, steal, iowait and run-queue wait have no samples to filter";

/** The next (1) or previous (-1) measure that the filter allows. */
export function stepMeasure(direction: 1 | -1): void {
  const allowed = isFiltered(filters.peek()) ? SAMPLED_MEASURES : MEASURES;
  const next = allowed.at((allowed.indexOf(measured.peek()) + direction) % allowed.length) ?? allowed[0];
  change({ measure: next }, "replace");
  announce(NAMES[next]);
}

export function MeasureSwitch(): JSX.Element {
  const measure = measured.value;
  const filtered = isFiltered(filters.value);
  return (
    <div class="measures" role="group" aria-label="what the heatmap shows">
      {MEASURES.map((each) => {
        const unavailable = filtered && !SAMPLED_MEASURES.includes(each);
        return (
          <button
            type="button"
            key={each}
            aria-pressed={each === measure}
            title={`${TITLES[each] ?? NAMES[each]} (v, V)`}
            // Stays focusable, so that a screen reader gets the reason.
            aria-disabled={unavailable}
            aria-describedby={unavailable ? "unsampled" : undefined}
            onClick={() => (unavailable ? announce(UNSAMPLED) : change({ measure: each }, "replace"))}
          >
            {NAMES[each]}
          </button>
        );
      })}
      {filtered && (
        <p class="unsampled" id="unsampled">
          {UNSAMPLED}
        </p>
      )}
    </div>
  );
}

/** The states that cells of a measure may have, where it has more than one. */
const STATES_OF: Partial<Record<Measure, string[]>> = {
  unusual: ["system", "softirq", "wait"],
  stall: ["system", "softirq", "wait"],
  deviation: ["system", "softirq"],
  busy: ["system", "softirq", "user", "steal"],
};

const STRENGTHS: Partial<Record<Measure, string>> = {
  unusual: "strong: held for seconds (full from 10 s); faint: far above its own normal",
  stall: "full strength: held for 10 s without a pause",
  deviation: "strength: points above its own normal",
  busy: "strength: the share of that state in the worst second",
};

function StateSwatch({ of }: { of: StateColour }): JSX.Element {
  return (
    <>
      <i class={`swatch state-${of.name}`} />
      {of.name}
    </>
  );
}

/** A state of the heatmap: a click shows its share alone. */
function StateButton({ of }: { of: StateColour }): JSX.Element {
  const measure = MEASURES.find((each) => each === of.name);
  return (
    <button
      type="button"
      title={`${of.meaning}; show its share alone (v, V)`}
      // The switch has a button of the same name.
      aria-label={`${of.name}, its share alone`}
      data-testid={`legend-${of.name}`}
      onClick={() => measure && change({ measure }, "replace")}
    >
      <StateSwatch of={of} />
    </button>
  );
}

/** Of the heatmap, or of another drawing of cores that has a measure of its own. */
export function Legend({ of }: { of?: Measure }): JSX.Element {
  const measure = of ?? measured.value;
  const filtered = isFiltered(filters.value);
  const names = STATES_OF[measure] ?? [];
  const states = STATES.filter((each) => names.includes(each.name));
  const one = STATES.find((each) => each.name === measure);
  return (
    <ul class="legend" aria-label="colours of the heatmap">
      {filtered && measure === "busy" && (
        <li title="the part of each core's time in samples that match the filter">
          <i class="swatch ramp ink" />
          time that matches the filter, 0 to 100 %
        </li>
      )}
      {!filtered &&
        states.map((each) => (
          <li key={each.name} title={of && each.meaning}>
            {of ? <StateSwatch of={each} /> : <StateButton of={each} />}
          </li>
        ))}
      {one && (
        <li title={one.meaning}>
          <i class={`swatch ramp state-${one.name}`} />
          {one.name}: {one.meaning}
          {filtered && " in what matches the filter"}, {one.name === "wait" ? "0 to 1 s in each second" : "0 to 100 %"}
        </li>
      )}
      {!filtered && STRENGTHS[measure] && <li class="less">{STRENGTHS[measure]}</li>}
      <li>
        <i class="swatch hatched" />
        not recorded
      </li>
    </ul>
  );
}
