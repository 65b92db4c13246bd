/**
 * The state of the page. All of it is in the address bar: components read these signals, and every action of the user
 * goes through `change`.
 */
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { consistent, filtersOf, measureOf, parseAddress, printAddress, type PageState } from "./address";
import type { Filters, FlameScope, FrameName, Scope } from "./api";
import { printCpus } from "./cpulist";
import { placeOf } from "./diagnosis/chain";
import { LinkedState } from "./link";
import { stepFor } from "./timeline/axis";
import type { RecordingInfo, Span } from "./types";

export type { PageState } from "./address";
export { undo } from "./link";

const link = new LinkedState<PageState>(parseAddress, printAddress, consistent);

export const { state } = link;

/** The recording; null until it is read. A live one grows. */
export const recording = signal<RecordingInfo | null>(null);

/** The recording to compare with; null where there is none. */
export const otherRecording = signal<RecordingInfo | null>(null);

/** How far that one is moved: its time minus this one's. */
export const shift = computed(() => {
  const [one, other] = [recording.value, otherRecording.value];
  return state.value.shift ?? (one && other ? automaticShift(one, other) : 0);
});

/** Recordings of the same time stay with the clock; others begin together. */
export function automaticShift(one: Span, other: Span): number {
  return one.since < other.until && other.since < one.until ? 0 : other.since - one.since;
}

/** The cores are requested: the incidents, which the answer needs, are read right behind them. */
export const coresRequested = signal(false);

/** The first drawing is done (or failed): less important requests wait for it. */
export const warm = signal(false);

/** The moment under the pointer, on any lane. */
export const pointedAt = signal<number | null>(null);

/** The frame under the pointer in a panel: its seconds light up on the heatmap. Not part of the address. */
export const hoveredFrame = signal<FrameName | null>(null);

/** The next box drawn in the heatmap becomes the baseline, not the selection. Not part of the address. */
export const pickingBase = signal(false);

/** From the first to the last recorded moment; null where nothing is recorded yet. */
export const extent = computed<Span | null>(() => {
  const known = recording.value;
  if (!known || known.until <= known.since) return null;
  return { since: known.since, until: known.until };
});

/** What the timeline shows. */
export const view = stable(computed<Span | null>(() => viewOf(state.value, extent.value)));

/** The view follows a live recording until the user changes it. */
export const following = computed(() => state.value.since === null && recording.value?.live === true);

export const filters = stable(computed<Filters>(() => filtersOf(state.value)));

/** What the heatmap shows: the chosen measure, as far as the filter allows it. */
export const measured = computed(() => measureOf(state.value));

/** While the view follows a recording, the analysed time moves in larger steps: not a new flame graph each second. */
function stepped(shown: Span | null): Span | null {
  if (!shown || !following.value) return shown;
  const step = stepFor(shown.until - shown.since, 10, 5000);
  const until = Math.floor(shown.until / step) * step;
  return until > shown.since ? { since: shown.since, until } : shown;
}

export interface Analysed extends Scope {
  /** The cores as a list; null is every core. */
  list: number[] | null;
  /** It was selected; else it is what the timeline shows. */
  selected: boolean;
}

/** What the panels look at: the selection, else the view. Stays the same object while it is equal. */
export const analysed = stable(
  computed<Analysed | null>(() => {
    const { s0, s1, cpus, cores } = state.value;
    const selected = s0 !== null && s1 !== null;
    const span = selected ? { since: s0, until: s1 } : stepped(view.value);
    if (!span) return null;
    const list = cpus ?? cores;
    return { ...span, list, cpus: list ? printCpus(list) : "", filters: filters.value, selected };
  }),
);

/** The request for a flame graph of what is analysed, with the baseline of the state (or none). */
export function flameScope(of: Analysed, baseline: FlameScope["baseline"]): FlameScope {
  const { b0, b1 } = state.value;
  const { since, until, cpus, filters: chosen } = of;
  const there = { since: since + shift.value, until: until + shift.value };
  const picked = b0 !== null && b1 !== null ? { since: b0, until: b1 } : null;
  const base = baseline === "other" ? there : picked;
  return { since, until, cpus, filters: chosen, baseline: baseline === "window" && !base ? "before" : baseline, base };
}

export function viewOf(of: PageState, whole: Span | null): Span | null {
  if (of.since !== null && of.until !== null) return { since: of.since, until: of.until };
  if (whole && of.last !== null) return { since: Math.max(whole.since, whole.until - of.last), until: whole.until };
  return whole;
}

/** A signal that keeps its object while the content is equal, so that readers do not repeat their requests. */
export function stable<Value>(source: ReadonlySignal<Value>): ReadonlySignal<Value> {
  let kept: { text: string; value: Value } | null = null;
  return computed(() => {
    const value = source.value;
    const text = JSON.stringify(value);
    if (kept?.text !== text) kept = { text, value };
    return kept.value;
  });
}

export function change(patch: Partial<PageState>, how: "push" | "replace" = "push"): void {
  link.change(patch, how);
}

export function select(span: Span | null, cpus: number[] | null): void {
  if (span === null) {
    change({ s0: null, s1: null, cpus: null, root: [], callerRoot: [], d0: null, d1: null });
    return;
  }
  // Selecting stops following: what is selected stays where it is.
  const shown = following.peek() ? view.peek() : null;
  const held = shown && { since: shown.since, until: shown.until, last: null };
  // Another selection is another question: a diagnosis that was pinned to its evidence goes.
  const [s0, s1] = [Math.round(span.since), Math.round(span.until)];
  change({ ...held, s0, s1, cpus, root: [], callerRoot: [], d0: null, d1: null });
}

/** Compare the selection with this time. */
export function takeBase(span: Span): void {
  pickingBase.value = false;
  change({ baseline: "window", b0: Math.round(span.since), b1: Math.round(span.until) });
}

export function moveView(span: Span, how: "push" | "replace" = "replace"): void {
  change({ since: Math.round(span.since), until: Math.round(span.until), last: null }, how);
}

/** The link that shows a colleague the same view: a view that follows is pinned to what is seen now. */
export function shareLink(): string {
  const shown = view.peek();
  const pinned = shown && following.peek() ? { ...state.peek(), since: shown.since, until: shown.until } : state.peek();
  return new URL(link.address(pinned), window.location.href).href;
}

/** The link to what is diagnosed, whatever step or evidence of it is shown. */
export function diagnosisLink(): string {
  const now = state.peek();
  const { d0, d1, dc } = now;
  if (d0 === null || d1 === null) return shareLink();
  const { shown } = placeOf({ since: d0, until: d1 }, extent.peek());
  const of = consistent({ ...now, ...shown, s0: d0, s1: d1, cpus: dc, d0: null, d1: null });
  return new URL(link.address(of), window.location.href).href;
}

export function startAddress(): void {
  link.start();
}
