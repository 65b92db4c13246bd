/**
 * The one place that knows the page's state. All of it stands in the address bar: whatever shows something reads these
 * signals, whatever a person does goes through `change`.
 */
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { consistent, filtersOf, measureOf, parseAddress, printAddress, type PageState } from "./address";
import type { Filters, FlameScope, FrameName, Scope } from "./api";
import { printCpus } from "./cpulist";
import { stepFor } from "./timeline/axis";
import type { RecordingInfo, Span } from "./wire";

export type { PageState } from "./address";

export const state = signal<PageState>(parseAddress(""));

/** What the server says about the recording; null until it has. Live ones grow. */
export const recording = signal<RecordingInfo | null>(null);

/** The first picture is drawn (or failed): what is smaller asks only then, so that it comes soon. */
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

/** The view moves along with a live recording until somebody touches it. */
export const following = computed(() => state.value.since === null && recording.value?.live === true);

export const filters = stable(computed<Filters>(() => filtersOf(state.value)));

/** What the heatmap shows: the chosen measure, as far as the filter allows it. */
export const measured = computed(() => measureOf(state.value));

/** While the view follows a recording, what is analysed moves in larger steps: a flame graph each second is no help. */
function restful(shown: Span | null): Span | null {
  if (!shown || !following.value) return shown;
  const step = stepFor(shown.until - shown.since, 10, 5000);
  const until = Math.floor(shown.until / step) * step;
  return until > shown.since ? { since: shown.since, until } : shown;
}

export interface Analysed extends Scope {
  /** The cores as a list; null is every core. */
  list: number[] | null;
  /** Somebody selected it; else it is what the timeline shows. */
  selected: boolean;
}

/** What the panels look at: the selection, else the view. Stays the same object while it is equal. */
export const analysed = stable(
  computed<Analysed | null>(() => {
    const { s0, s1, cpus, cores } = state.value;
    const selected = s0 !== null && s1 !== null;
    const span = selected ? { since: s0, until: s1 } : restful(view.value);
    if (!span) return null;
    const list = cpus ?? cores;
    return { ...span, list, cpus: list ? printCpus(list) : "", filters: filters.value, selected };
  }),
);

/** The question for a flame graph of what is analysed, with the baseline of the state (or none). */
export function flameScope(of: Analysed, baseline: FlameScope["baseline"]): FlameScope {
  const { b0, b1 } = state.value;
  const base = b0 !== null && b1 !== null ? { since: b0, until: b1 } : null;
  const { since, until, cpus, filters: chosen } = of;
  return { since, until, cpus, filters: chosen, baseline: baseline === "window" && !base ? "before" : baseline, base };
}

export function viewOf(of: PageState, whole: Span | null): Span | null {
  if (of.since !== null && of.until !== null) return { since: of.since, until: of.until };
  if (whole && of.last !== null) return { since: Math.max(whole.since, whole.until - of.last), until: whole.until };
  return whole;
}

/** A signal that keeps its object until the content differs, so that readers don't ask the server again for nothing. */
export function stable<Value>(source: ReadonlySignal<Value>): ReadonlySignal<Value> {
  let kept: { text: string; value: Value } | null = null;
  return computed(() => {
    const value = source.value;
    const text = JSON.stringify(value);
    if (kept?.text !== text) kept = { text, value };
    return kept.value;
  });
}

/**
 * Change the state. `push` makes a step that undo (and the browser's back button) takes back: selections, jumps, tabs;
 * `replace` is for what moves continuously, such as panning.
 */
export function change(patch: Partial<PageState>, how: "push" | "replace" = "push"): void {
  const next = consistent({ ...state.peek(), ...patch });
  if (printAddress(next) === printAddress(state.peek())) return;
  if (how === "push") {
    writeAddress();
    state.value = next;
    window.history.pushState({ depth: depth() + 1 }, "", address(next));
  } else {
    state.value = next;
    writing ??= window.setTimeout(writeAddress, 250);
  }
}

/** Take back the last step of this visit. False where there is none. */
export function undo(): boolean {
  if (depth() === 0) return false;
  window.history.back();
  return true;
}

export function select(span: Span | null, cpus: number[] | null): void {
  if (span === null) {
    change({ s0: null, s1: null, cpus: null, root: [] });
    return;
  }
  // Whoever selects has touched the view: it follows no longer, and what is selected stays where it is.
  const shown = following.peek() ? view.peek() : null;
  const held = shown && { since: shown.since, until: shown.until, last: null };
  change({ ...held, s0: Math.round(span.since), s1: Math.round(span.until), cpus, root: [] });
}

/** Hold what is selected against this time. */
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
  return new URL(address(pinned), window.location.href).href;
}

/** Read the address bar now and whenever it changes (back, forward, a pasted link). */
export function startAddress(): void {
  const read = (): void => {
    state.value = parseAddress(window.location.hash);
  };
  read();
  window.addEventListener("popstate", read);
  window.addEventListener("hashchange", read);
}

let writing: number | null = null;

function writeAddress(): void {
  if (writing === null) return;
  window.clearTimeout(writing);
  writing = null;
  window.history.replaceState({ depth: depth() }, "", address(state.peek()));
}

function address(of: PageState): string {
  return `${window.location.pathname}${window.location.search}${printAddress(of)}`;
}

function depth(): number {
  const kept: unknown = window.history.state;
  return typeof kept === "object" && kept !== null && "depth" in kept ? Number(kept.depth) : 0;
}
