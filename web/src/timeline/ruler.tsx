/** The time axis in words. */
import type { JSX } from "preact";
import { day, range } from "../format";
import { state, view } from "../state";
import { ticks } from "./axis";
import { Lane } from "./lane";
import { placeOf, plotWidth } from "./plot";

export function Ruler(): JSX.Element | null {
  const shown = view.value;
  const { utc } = state.value;
  if (!shown || plotWidth.value === 0) return null;
  return (
    <Lane name="time" title={day(shown.since, utc)}>
      <div class="ruler" role="img" aria-label={range(shown.since, shown.until, utc)} data-testid="ruler">
        {ticks(shown, plotWidth.value, utc).map((tick) => (
          <span key={tick.at} class={tick.day ? "tick day" : "tick"} style={{ left: `${placeOf(tick.at, shown)}px` }}>
            {tick.label}
          </span>
        ))}
      </div>
    </Lane>
  );
}
