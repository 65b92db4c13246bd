/** Navigation on the timeline: zoom, pan, jump. */
import { announce } from "../a11y";
import { formatCores } from "../cpulist";
import { datedRange, duration, stamp } from "../format";
import { incidents, incidentsKnown } from "../live";
import { analysed, change, extent, following, moveView, pointedAt, recording, state, view } from "../state";
import type { Incident } from "../types";
import { centred, panned, within, zoomed } from "./axis";

export const WIDTHS: readonly { label: string; ms: number | null; title: string }[] = [
  { label: "10 s", ms: 10_000, title: "ten seconds" },
  { label: "1 m", ms: 60_000, title: "a minute" },
  { label: "10 m", ms: 600_000, title: "ten minutes" },
  { label: "1 h", ms: 3_600_000, title: "an hour" },
  { label: "all", ms: null, title: "everything" },
];

export function zoomBy(factor: number, around?: number): void {
  const [shown, whole] = [view.peek(), extent.peek()];
  if (!shown || !whole) return;
  const middle = around ?? pointedAt.peek() ?? focus();
  moveView(zoomed(shown, whole, factor, Math.min(Math.max(middle, shown.since), shown.until)));
}

export function panBy(share: number): void {
  const [shown, whole] = [view.peek(), extent.peek()];
  if (!shown || !whole) return;
  moveView(panned(shown, whole, share * (shown.until - shown.since)));
}

/** A view of this length around what is looked at; everything where it is null. A view that follows keeps following. */
export function showWidth(ms: number | null): void {
  const [shown, whole] = [view.peek(), extent.peek()];
  if (!shown || !whole) return;
  if (ms === null || ms >= whole.until - whole.since) change({ since: null, until: null, last: null });
  else if (following.peek() && state.peek().s0 === null) change({ since: null, until: null, last: ms });
  else moveView(centred(focus(), ms, whole), "push");
  const now = view.peek();
  if (now) announce(`showing ${duration(now.until - now.since)}`);
}

/** The point to zoom at: the selection if it is in view, else the middle. */
function focus(): number {
  const shown = view.peek();
  const { s0, s1 } = state.peek();
  if (!shown) return 0;
  const middle = (shown.since + shown.until) / 2;
  if (s0 === null || s1 === null) return middle;
  const selected = (s0 + s1) / 2;
  return selected >= shown.since && selected <= shown.until ? selected : middle;
}

export function zoomToSelection(): void {
  const whole = extent.peek();
  const of = analysed.peek();
  if (!whole || !of?.selected) return;
  const length = Math.max(10_000, (of.until - of.since) * 1.5);
  moveView(centred((of.since + of.until) / 2, length, whole), "push");
}

const AROUND_MS = 45_000;

/** Shows an incident on the timeline and selects its time and cores. */
export function openIncident(incident: Incident): void {
  const whole = extent.peek();
  if (!whole) return;
  const shown = within({ since: incident.since - AROUND_MS, until: incident.until + AROUND_MS }, whole);
  const cores = incident.cpus.length > 0 && incident.cpus.length < (recording.peek()?.cores ?? 0);
  change({
    since: Math.round(shown.since),
    until: Math.round(shown.until),
    last: null,
    s0: incident.since,
    s1: endOf(incident),
    cpus: cores ? incident.cpus : null,
    root: [],
    d0: null,
    d1: null,
  });
  announce(`incident: ${incidentLabel(incident)}`);
}

/** Where the selection of an incident ends: a second is the least that can be looked at. */
export function endOf(incident: Incident): number {
  return Math.max(incident.until, incident.since + 1000);
}

export function incidentLabel(incident: Incident): string {
  const where = incident.cpus.length > 0 ? ` on ${formatCores(incident.cpus, recording.peek()?.cores)}` : "";
  const what = incident.title ?? incident.text;
  return `${what}${where}, ${datedRange(incident.since, incident.until, state.peek().utc)}`;
}

/** Goes to the next (1) or previous (-1) incident. */
export function stepIncident(direction: 1 | -1): void {
  if (!incidentsKnown.peek()) {
    // The incidents are still loading: the step is taken as soon as they are there.
    announce("loading incidents");
    const stop = incidentsKnown.subscribe((known) => {
      if (!known) return;
      queueMicrotask(() => stop());
      stepIncident(direction);
    });
    return;
  }
  const shown = view.peek();
  const known = [...incidents.peek()].sort((a, b) => a.since - b.since);
  if (!shown || known.length === 0) {
    announce("no incident is marked in this recording");
    return;
  }
  const here = state.peek().s0 ?? (direction > 0 ? shown.since - 1 : shown.until);
  const next =
    direction > 0 ? known.find((each) => each.since > here) : known.findLast((each) => each.since < here);
  if (next) openIncident(next);
  else announce(direction > 0 ? "that was the last incident" : "that was the first incident");
}

/** Pins these cores to the top of the heatmap; unpins them where all of them are. */
export function togglePinned(cpus: readonly number[]): void {
  const pinned = state.peek().pinned ?? [];
  const all = cpus.every((cpu) => pinned.includes(cpu));
  const next = all ? pinned.filter((cpu) => !cpus.includes(cpu)) : [...new Set([...pinned, ...cpus])];
  change({ pinned: next.length > 0 ? next.sort((a, b) => a - b) : null }, "replace");
  announce(`${formatCores([...cpus])} ${all ? "unpinned" : "pinned to the top"}`);
}

export function pinSelected(): void {
  const { cpus } = state.peek();
  if (cpus === null) announce("select a core first, to pin it");
  else togglePinned(cpus);
}

export function toggleOrder(): void {
  const order = state.peek().order === "worst" ? "number" : "worst";
  change({ order }, "replace");
  announce(order === "worst" ? "the worst core first" : "cores by their number");
}

export function toggleTall(): void {
  change({ tall: !state.peek().tall }, "replace");
  announce(state.peek().tall ? "high rows" : "all cores on the screen");
}

export function timeLabel(at: number): string {
  return stamp(at, state.peek().utc, extent.peek());
}
