/** The lane of events: NIC resets, lockups, OOM, restarts, boots, failed jobs; and where nothing was recorded. */
import type { JSX } from "preact";
import { moveFocus, VisuallyHidden } from "../a11y";
import { api } from "../api";
import { printCpus } from "../cpulist";
import { duration, moment, plural } from "../format";
import { change, extent, filters, recording, state, view, warm } from "../state";
import type { Mark } from "../types";
import { centred } from "./axis";
import { clusters, GLYPHS, mostSevere, MARK_PX, markStyle } from "./clusters";
import { Lane } from "./lane";
import { placeOf, plotWidth, useCells } from "./plot";

/** What the recorder lost is drawn as such. */
const LOST = { kind: "lost", glyph: "▒" };
/** The resolution of the request for marks; those that are too close to be hit alone are drawn as one. */
const REQUEST_PX = 12;
/** With less room there is no label: of most lines the first word alone would remain. */
const LABEL_PX = 140;
/** One click on an event selects a little around it. */
const AROUND_MS = 5_000;
/** A longer view comes closer. */
const MAX_MS = 600_000;

export function EventLane(): JSX.Element | null {
  const wanted = { cpus: state.value.cores ? printCpus(state.value.cores) : "", filters: filters.value };
  const read = useCells(
    warm.value ? JSON.stringify(["marks", wanted]) : null,
    (plan, signal) => api.marks({ ...plan, ...wanted }, plan.cells, signal),
    { perPixel: 1 / REQUEST_PX },
  );
  const shown = view.value;
  if (!shown) return null;
  const { utc } = state.value;
  // The recorder's own marks have a lane of their own.
  const marks = (read.value ?? []).filter((mark) => mark.kind !== "incident");
  const seen = marks.filter((mark) => mark.until >= shown.since && mark.at < shown.until);
  const logged = seen.filter((mark) => !isLoss(mark));
  const placed = seen.map((item) => ({ x: placeOf(item.at, shown), item }));
  return (
    <Lane name="events" title="events" aside={logged.length > 0 ? plural(total(logged), "event") : null}>
      <Gaps />
      <div class="marks" data-testid="marks" onKeyDown={moveFocus}>
        {read.error !== null && <span class="lane-empty">could not be read: {read.error}</span>}
        {read.value && seen.length === 0 && <span class="lane-empty">nothing was logged in view</span>}
        {clusters(placed, plotWidth.value, MARK_PX).map((cluster, place) => {
          const { items, room, left } = cluster;
          const worst = mostSevere(items);
          const text = `${worst.text}${total(items) > 1 ? ` ×${total(items)}` : ""}`;
          return (
            <button
              type="button"
              key={`${worst.at} ${worst.kind}`}
              // One stop of the Tab key for all of them; arrows go on.
              tabIndex={place === 0 ? 0 : -1}
              class={`mark event ${worst.severity} ${left ? "left" : ""}`}
              style={markStyle(cluster, plotWidth.value)}
              title={`${moment(worst.at, utc)} ${worst.kind}: ${worst.text}${more(items)}`}
              onClick={() => openEvents(worst)}
            >
              <i aria-hidden="true">{isLoss(worst) ? LOST.glyph : (GLYPHS[worst.severity] ?? GLYPHS.info)}</i>
              <VisuallyHidden>{worst.kind}: </VisuallyHidden>
              {room > LABEL_PX ? <span class="label">{text}</span> : <VisuallyHidden>{text}</VisuallyHidden>}
              <VisuallyHidden>, {moment(worst.at, utc)}</VisuallyHidden>
            </button>
          );
        })}
      </div>
      <MarkLegend />
    </Lane>
  );
}

/** What the signs mean; all of them, so that the lane keeps its height while the view moves. */
function MarkLegend(): JSX.Element {
  return (
    <ul class="legend mark-legend" aria-label="signs of events" data-testid="mark-legend">
      {Object.entries({ ...GLYPHS, [LOST.kind]: LOST.glyph }).map(([meaning, glyph]) => (
        <li key={meaning} class={meaning}>
          <i aria-hidden="true">{glyph}</i> {meaning}
        </li>
      ))}
    </ul>
  );
}

function isLoss(mark: Mark): boolean {
  return mark.kind === LOST.kind;
}

function total(marks: Mark[]): number {
  return marks.reduce((sum, mark) => sum + mark.count, 0);
}

function more(items: Mark[]): string {
  const others = total(items) - 1;
  return others > 0 ? ` (and ${plural(others, "more", "more")})` : "";
}

function openEvents(mark: Mark): void {
  const [shown, whole] = [view.peek(), extent.peek()];
  if (!shown || !whole) return;
  const moved = shown.until - shown.since > MAX_MS ? centred(mark.at, MAX_MS, whole) : null;
  change({
    ...(moved && { since: Math.round(moved.since), until: Math.round(moved.until), last: null }),
    s0: mark.at - AROUND_MS,
    s1: Math.max(mark.until, mark.at) + AROUND_MS,
    cpus: null,
    root: [],
    callerRoot: [],
    // Another selection is another question: a diagnosis that was pinned to its evidence goes.
    d0: null,
    d1: null,
    tab: "events",
  });
}

/** Stretches without a recording, hatched. */
export function Gaps(): JSX.Element | null {
  const shown = view.value;
  const gaps = recording.value?.gaps ?? [];
  if (!shown) return null;
  return (
    <>
      {gaps
        .filter(([since, until]) => until > shown.since && since < shown.until)
        .map(([since, until]) => {
          const left = Math.max(0, placeOf(since, shown));
          const right = Math.min(plotWidth.value, placeOf(until, shown));
          return (
            <i
              key={since}
              class="gap"
              role="img"
              aria-label={`not recorded for ${duration(until - since)}`}
              title={`not recorded for ${duration(until - since)}`}
              style={{ left: `${left}px`, width: `${Math.max(2, right - left)}px` }}
            />
          );
        })}
    </>
  );
}
