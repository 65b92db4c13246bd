/** Lines over the same time axis: memory cgroups, pressure, reclaim, run-queue wait, throttling. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { api } from "../api";
import { number, quantity, time } from "../format";
import { Placeholder } from "../resource";
import { change, pointedAt, recording, state, view, warm } from "../state";
import type { Lane as LaneData, Lanes as LanesData } from "../types";
import { Lane } from "./lane";
import { greatest, lastAt, linesOf, type Lines } from "./lines";
import { LineChart } from "./linechart";
import { Gaps } from "./marks";
import { useCells } from "./plot";

export const LANES: readonly { name: string; title: string }[] = [
  { name: "memcgs", title: "memcgs" },
  { name: "pressure", title: "pressure" },
  { name: "reclaim", title: "reclaim" },
  { name: "wait", title: "run-queue wait" },
  { name: "throttling", title: "throttling" },
];

export function LineLanes(): JSX.Element {
  const open = LANES.map((lane) => lane.name).filter((name) => state.value.lanes.includes(name));
  const read = useCells(
    warm.value && open.length > 0 ? `lanes ${open.join(",")}` : null,
    (plan, signal) => api.lanes(plan, plan.cells, open, signal),
    { perPixel: 0.5 },
  );
  return (
    <>
      {read.error !== null && <Placeholder of={read} what="the lanes" />}
      {open.map((name) => (
        <LineLane key={name} name={name} answer={read.value} />
      ))}
    </>
  );
}

function LineLane({ name, answer }: { name: string; answer: LanesData | null }): JSX.Element {
  const data = answer?.lanes.find((lane) => lane.name === name) ?? null;
  const title = LANES.find((lane) => lane.name === name)?.title ?? name;
  const gaps = recording.value?.gaps;
  const lines = useMemo(() => (data && answer ? linesOf(data, answer, gaps ?? []) : null), [data, answer, gaps]);
  // The borders of gaps are in the lines, too.
  const empty = lines !== null && lines.values.every((values) => values.every((value) => value === null));
  return (
    <Lane name={title} title={title} aside={data?.unit}>
      {data && lines && !empty && (
        <>
          <LineChart data={data} lines={lines} />
          <Gaps />
          <Key data={data} lines={lines} />
        </>
      )}
      {!data && <div class="lane-blank" />}
      {empty && <span class="lane-empty">no measurements in view</span>}
    </Lane>
  );
}

/** Which line is which, with its value at the pointer, else its greatest in view, else the last one before. */
function Key({ data, lines }: { data: LaneData; lines: Lines }): JSX.Element | null {
  const shown = view.value;
  const at = pointedAt.value;
  if (!shown) return null;
  return (
    <ul class="line-key">
      {data.series.map((series, i) => {
        const most = at === null ? greatest(lines, i, shown) : null;
        const last = most === null ? lastAt(lines, i, at ?? shown.until) : null;
        const value = most ?? last?.value ?? null;
        return (
          <li key={series.name}>
            <i class={`stroke stroke-${i}`} />
            <span class="long">{series.title}</span>
            <span class="brief">{series.name}</span> <strong>{value === null ? "–" : quantity(value, "")}</strong>
            {most !== null && <small> most</small>}
            {at === null && last !== null && <small> at {time(last.at, state.value.utc)}</small>}
          </li>
        );
      })}
    </ul>
  );
}

export function LaneSwitch(): JSX.Element {
  const { lanes } = state.value;
  return (
    <div class="lane lane-switch" role="group" aria-label="more lanes">
      <div class="lane-title">more</div>
      <div class="lane-plot">
        {LANES.map(({ name, title }) => {
          const open = lanes.includes(name);
          const next = open ? lanes.filter((each) => each !== name) : [...lanes, name];
          return (
            <button type="button" key={name} aria-pressed={open} onClick={() => change({ lanes: next }, "replace")}>
              {title}
            </button>
          );
        })}
      </div>
    </div>
  );
}

/** A lane as text, for screen readers. */
export function laneLabel(data: LaneData, lines: Lines): string {
  const shown = view.value;
  const values = data.series.map((series, i) => {
    const most = shown && greatest(lines, i, shown);
    return `${series.title}: ${most === null ? "nothing" : `at most ${number(most, 2)}`}`;
  });
  return `${data.title}, ${data.unit}; ${values.join("; ")}`;
}
