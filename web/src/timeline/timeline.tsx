/** The timeline: every lane over one time axis. */
import type { JSX } from "preact";
import { announce } from "../a11y";
import { useShortcuts } from "../keyboard";
import { savePicture } from "../panels/export";
import { change, pickingBase, pointedAt, select, state, undo, view } from "../state";
import { brushed } from "./brush";
import { CompareLanes } from "./compare";
import { Heatmap } from "./heatmap";
import { IncidentLane } from "./incidents";
import { LaneSwitch, LineLanes } from "./lanes";
import { MeasureSwitch, stepMeasure } from "./legend";
import { EventLane } from "./marks";
import {
  panBy,
  pinSelected,
  showWidth,
  stepIncident,
  timeLabel,
  toggleOrder,
  toggleTall,
  WIDTHS,
  zoomBy,
  zoomToSelection,
} from "./navigation";
import { Overview, WidthButtons } from "./overview";
import { timelinePicture } from "./picture";
import { placeOf, plotWidth, useMeasuredWidth } from "./plot";
import { Ruler } from "./ruler";
import { addTrackHere } from "./slices/track-list";
import { Tracks } from "./slices/tracks";
import { toggleSlices } from "./slices/view";
import { TimeField } from "./timefield";

export function Timeline(): JSX.Element {
  const measured = useMeasuredWidth();
  useShortcuts(() => [
    { keys: ["ArrowLeft", "h"], group: "Timeline", title: "earlier", run: () => panBy(-0.2) },
    { keys: ["ArrowRight", "l"], group: "Timeline", title: "later", run: () => panBy(0.2) },
    { keys: ["+", "="], group: "Timeline", title: "zoom in", run: () => zoomBy(0.5) },
    { keys: ["-"], group: "Timeline", title: "zoom out", run: () => zoomBy(2) },
    { keys: ["0"], group: "Timeline", title: "whole recording", run: () => showWidth(WIDTHS[WIDTHS.length - 1].ms) },
    { keys: ["n"], group: "Timeline", title: "next incident", run: () => stepIncident(1) },
    { keys: ["p"], group: "Timeline", title: "previous incident", run: () => stepIncident(-1) },
    { keys: ["v"], group: "Timeline", title: "the next measure", run: () => stepMeasure(1) },
    { keys: ["V"], group: "Timeline", title: "the previous measure", run: () => stepMeasure(-1) },
    { keys: ["o"], group: "Timeline", title: "the worst core first, or by number", run: toggleOrder },
    { keys: ["r"], group: "Timeline", title: "high rows, or all cores on the screen", run: toggleTall },
    { keys: ["w"], group: "Timeline", title: "who ran, or the measure, in views of up to 10 s", run: toggleSlices },
    {
      keys: ["a"],
      group: "Timeline",
      title: "add a track of the highlighted process, or of the filter",
      run: addTrackHere,
    },
    { keys: ["t"], group: "Selection", title: "pin the selected cores to the top", run: pinSelected },
    { keys: ["z"], group: "Selection", title: "zoom to the selection", run: zoomToSelection },
    {
      keys: ["Backspace"],
      group: "Selection",
      title: "undo the last step",
      run: () => void (undo() || announce("nothing to undo")),
    },
    {
      keys: ["Escape"],
      group: "Selection",
      title: "clear the selection, then the painted frame and the highlighted process",
      run: () => {
        if (pickingBase.peek()) pickingBase.value = false;
        else if (state.peek().s0 === null) change({ paint: null, marked: null });
        else select(null, null);
      },
    },
  ]);
  return (
    <section class="timeline" aria-label="timeline">
      <div class="timeline-tools">
        <MeasureSwitch />
        <TimeField />
        <WidthButtons />
        <button
          type="button"
          class="picture"
          title="save the timeline as a picture"
          data-testid="timeline-png"
          onClick={() => savePicture(timelinePicture(), "timeline")}
        >
          PNG
        </button>
      </div>
      <div class="lane lane-measure" aria-hidden="true">
        <div class="lane-title" />
        <div class="lane-plot" ref={measured} />
      </div>
      <Overview />
      <div class="lanes">
        <IncidentLane />
        <Ruler />
        <Heatmap />
        <Tracks />
        <CompareLanes />
        <EventLane />
        <LineLanes />
        <Cursor />
      </div>
      <LaneSwitch />
    </section>
  );
}

/** One line through all lanes: the moment under the pointer, and the selected time. */
function Cursor(): JSX.Element | null {
  const shown = view.value;
  if (!shown || plotWidth.value === 0) return null;
  const at = pointedAt.value;
  const { s0: since, s1: until } = state.value;
  // What is being dragged stands for the selection that it becomes.
  const [s0, s1] = brushed.value ? [brushed.value.since, brushed.value.until] : [since, until];
  const left = s0 === null ? 0 : Math.max(0, placeOf(s0, shown));
  const right = s1 === null ? 0 : Math.min(plotWidth.value, placeOf(s1, shown));
  return (
    <div class="cursor-layer" aria-hidden="true">
      {s0 !== null && right >= 0 && left <= plotWidth.value && right >= left && (
        <i class="band" style={{ left: `${left}px`, width: `${Math.max(2, right - left)}px` }} />
      )}
      {at !== null && at >= shown.since && at <= shown.until && (
        <i class="cursor" style={{ left: `${placeOf(at, shown)}px` }}>
          <span>{timeLabel(at)}</span>
        </i>
      )}
    </div>
  );
}
