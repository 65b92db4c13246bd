/** The labels of the time axis. */
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { day, range } from "../format";
import { state, view } from "../state";
import type { Span } from "../types";
import { position, ticks, type Tick } from "./axis";
import { useTimeBrush } from "./brush";
import { Lane } from "./lane";
import { plotWidth } from "./plot";

export function Ruler(): JSX.Element | null {
  const shown = view.value;
  const { utc } = state.value;
  const element = useRef<HTMLDivElement>(null);
  const ready = shown !== null && plotWidth.value > 0;
  useTimeBrush(element, ready);
  if (!shown || !ready) return null;
  return (
    <Lane name="time" title={day(shown.since, utc)}>
      <div
        ref={element}
        class="ruler brushable"
        role="img"
        aria-label={range(shown.since, shown.until, utc)}
        title="drag to select this time on every core"
        data-testid="ruler"
      >
        <Ticks ticks={ticks(shown, plotWidth.value, utc)} shown={shown} width={plotWidth.value} />
      </div>
    </Lane>
  );
}

/** About a letter's width: a label that would be cut off at the end is left out, its line stays. */
const LETTER_PX = 6.5;

export function Ticks(props: { ticks: Tick[]; shown: Span; width: number }): JSX.Element {
  return (
    <>
      {props.ticks.map(({ at, day, label }) => {
        const x = position(at, props.shown, props.width);
        return (
          <span key={at} class={day ? "tick day" : "tick"} style={{ left: `${(x / props.width) * 100}%` }}>
            {x + 4 + label.length * LETTER_PX <= props.width ? label : "\u00a0"}
          </span>
        );
      })}
    </>
  );
}
