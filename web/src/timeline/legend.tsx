/** The legend, and the switch between the measures of the heatmap. */
import type { JSX } from "preact";
import { announce } from "../a11y";
import { isFiltered, MEASURES, SAMPLED_MEASURES, type Measure } from "../address";
import { change, filters, measured } from "../state";
import { STATES } from "../theme";

const NAMES: Record<Measure, string> = {
  busy: "busiest",
  system: "system",
  softirq: "softirq",
  user: "user",
  steal: "steal",
  iowait: "iowait",
  wait: "run-queue wait",
};

const UNSAMPLED = "steal, iowait and run-queue wait have no samples to filter";

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

export function Legend(): JSX.Element {
  const measure = measured.value;
  const filtered = isFiltered(filters.value);
  const states = measure === "busy" ? STATES.filter((each) => each.name !== "wait") : [];
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
          <li key={each.name} title={each.meaning}>
            <i class={`swatch state-${each.name}`} />
            {each.name}
          </li>
        ))}
      {one && (
        <li title={one.meaning}>
          <i class={`swatch ramp state-${one.name}`} />
          {one.name}: {one.meaning}
          {filtered && " in what matches the filter"}, {one.name === "wait" ? "0 to 1 s in each second" : "0 to 100 %"}
        </li>
      )}
      {!filtered && measure === "busy" && (
        <li class="less">strength: share of the worst second</li>
      )}
      <li>
        <i class="swatch hatched" />
        not recorded
      </li>
    </ul>
  );
}
