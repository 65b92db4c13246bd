/** Lines over the same time axis: memory cgroups, pressure, reclaim, run-queue wait, throttling. */
import type { JSX } from "preact";
import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { AUTO_LANE } from "../address";
import { api } from "../api";
import { number, quantity, time } from "../format";
import { Placeholder, useResource } from "../resource";
import { change, extent, pointedAt, recording, state, view, warm } from "../state";
import type { Lane as LaneData, Lanes as LanesData, Span } from "../types";
import { centred } from "./axis";
import { worstCells } from "./heat";
import { Lane } from "./lane";
import { briefly, greatest, lastAt, linesOf, mostDeviating, type Lines } from "./lines";
import { LineChart } from "./linechart";
import { Gaps } from "./marks";
import { overviewGrid } from "./overview";
import { useCells } from "./plot";

export const LANES: readonly { name: string; title: string }[] = [
  { name: "memcgs", title: "memcgs" },
  { name: "pressure", title: "pressure" },
  { name: "reclaim", title: "reclaim" },
  { name: "wait", title: "run-queue wait" },
  { name: "throttling", title: "throttling" },
];

/** The lane that deviates most, once it is known; it stays open. */
const autoLane = signal<string | null>(null);

/** The lanes that are open; the one that deviates most until others are chosen. */
function openLanes(): string[] {
  const chosen = state.value.lanes;
  if (!chosen.includes(AUTO_LANE)) return LANES.map((lane) => lane.name).filter((name) => chosen.includes(name));
  return autoLane.value === null ? [] : [autoLane.value];
}

/** Finds the lane that deviates most, once: in the recording, of a long one in the hour around its worst moment. */
function useAutoLane(): void {
  const wanted = state.value.lanes.includes(AUTO_LANE) && autoLane.value === null && warm.value;
  const [whole, grid] = [extent.value, overviewGrid.value];
  const names = LANES.map((lane) => lane.name);
  const read = useResource(wanted && whole ? "auto lane" : null, (signal) => {
    const over = whole as Span;
    const [worst] = grid ? worstCells(grid, over, 1) : [];
    return api.lanes(centred(worst?.since ?? over.until, AUTO_MS, over), AUTO_CELLS, names, signal);
  });
  useEffect(() => {
    if (read.value) autoLane.value = mostDeviating(read.value.lanes) ?? LANES[0].name;
    else if (read.error !== null) autoLane.value = LANES[0].name;
  }, [read.value, read.error]);
}

/** Hours of every table would take longer than the first view. */
const AUTO_MS = 3_600_000;
const AUTO_CELLS = 400;

export function LineLanes(): JSX.Element {
  useAutoLane();
  const open = openLanes();
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
            <span class="brief">{briefly(series.title)}</span>{" "}
            <strong>{value === null ? "–" : quantity(value, "")}</strong>
            {most !== null && <small> most</small>}
            {at === null && last !== null && <small> at {time(last.at, state.value.utc)}</small>}
          </li>
        );
      })}
    </ul>
  );
}

export function LaneSwitch(): JSX.Element {
  const lanes = openLanes();
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
