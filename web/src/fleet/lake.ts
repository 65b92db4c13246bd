/** What is shown: the values and the grouping of one hour, read as the state changes, and kept. */
import { computed, effect, signal } from "@preact/signals";
import { errorMessage } from "../resource";
import type { FleetHistogram, FleetInfo, FleetMeasure, FleetReport } from "../types";
import { HOUR_MS } from "./address";
import { api } from "./api";
import type { Column, HourCells } from "./columns";
import { groupNodes, type Group } from "./grouping";
import { change, state } from "./state";

export const fleet = signal<FleetInfo | null>(null);
export const histogram = signal<FleetHistogram | null>(null);
export const report = signal<FleetReport | null>(null);
/** Why the lake could not be read; null without an error. */
export const trouble = signal<string | null>(null);
/** An hour or a measure is being read for longer than is unnoticed. */
export const loading = signal(false);

/** One hour as it is drawn. */
export interface Shown {
  at: number;
  names: string[];
  measure: FleetMeasure;
  values: Float32Array;
  silent: number;
  /** The attribute of the grouping; null where the lake has no such key. */
  column: Column | null;
  group: string;
}

export const shown = signal<Shown | null>(null);
/** All keys that nodes can be grouped by, once they are known. */
export const keys = signal<string[]>([]);

const order = computed(() => state.value.order);

export const groups = computed<Group[]>(() => {
  const now = shown.value;
  return now ? groupNodes(now.column, now.values, order.value) : [];
});

/** The hour that is asked for; null before the lake is known. */
export const hour = computed(() => state.value.at ?? fleet.value?.hours.at(-1) ?? shown.value?.at ?? null);

const SLOW_MS = 200;
const RETRY_MS = 3000;
const REST_MS = 400;
const REPORT_MS = 3000;
/** While the newest hour is shown, it is read again this often. */
const REREAD_MS = 60_000;
const MAX_HOURS = 48;
const MAX_ROSTERS = 8;
const PREFERRED = ["zone", "pool", "image", "kernel", "instance_type"];

/** By hour; the one that was used last is last. */
const kept = new Map<number, KeptHour>();

interface KeptHour {
  roster: string;
  names: string[];
  silent: number;
  values: Map<string, Float32Array>;
  columns: Map<string, Column>;
  /** All keys and the usual columns were read. */
  complete: boolean;
}

/** Rosters by their hash: most hours have the same nodes. */
const rosters = new Map<string, string[]>();

function keep(cells: HourCells): KeptHour {
  const names = cells.names ?? rosters.get(cells.roster);
  if (!names) throw new Error("the server left out the names of nodes");
  rosters.delete(cells.roster);
  rosters.set(cells.roster, names);
  if (rosters.size > MAX_ROSTERS) rosters.delete([...rosters.keys()][0]);
  const old = kept.get(cells.at);
  // With another roster, older columns are of other nodes.
  const same = old?.roster === cells.roster ? old : null;
  const now: KeptHour = {
    roster: cells.roster,
    names,
    silent: cells.silent,
    values: new Map([...(same?.values ?? []), ...cells.values]),
    columns: same?.columns ?? new Map<string, Column>(),
    complete: same?.complete ?? false,
  };
  kept.delete(cells.at);
  kept.set(cells.at, now);
  for (const at of kept.keys()) {
    if (kept.size <= MAX_HOURS) break;
    kept.delete(at);
  }
  return now;
}

/** The newest roster that the server need not send again. */
function knownRoster(): string {
  return [...rosters.keys()].at(-1) ?? "";
}

async function valuesOf(at: number | null, measure: string, signal: AbortSignal): Promise<number> {
  if (at !== null && kept.get(at)?.values.has(measure)) return at;
  const cells = await api.cells(at, measure, knownRoster(), signal);
  keep(cells);
  return cells.at;
}

async function columnOf(at: number, key: string, signal: AbortSignal): Promise<void> {
  const hour = kept.get(at);
  if (!hour || key === "" || hour.columns.has(key)) return;
  await readColumns(at, [key], signal);
}

/** Read columns of an hour; without keys, the usual ones of all. Nodes that came meanwhile change the roster. */
async function readColumns(at: number, wanted: string[], signal: AbortSignal): Promise<void> {
  for (let attempt = 0; attempt < 3; attempt++) {
    const hour = kept.get(at);
    if (!hour) return;
    const found = await api.attributes(at, wanted, signal);
    if (found.roster === hour.roster) {
      for (const [key, column] of found.columns) hour.columns.set(key, column);
      if (wanted.length === 0) {
        hour.complete = true;
        keys.value = found.keys;
      }
      return;
    }
    kept.delete(at);
    keep(await api.cells(at, state.peek().measure, "", signal));
  }
}

/** Show what the state asks for; what is there already is shown at once. */
async function show(at: number | null, measure: string, group: string, signal: AbortSignal): Promise<void> {
  const slow = window.setTimeout(() => (loading.value = true), SLOW_MS);
  try {
    // Both at once; the column is read again where nodes came in between.
    const early = group !== "" && !kept.get(at ?? -1)?.columns.has(group);
    const [found, columns] = await Promise.all([
      valuesOf(at, measure, signal),
      early ? api.attributes(at, [group], signal) : null,
      known(),
    ]);
    const hour = kept.get(found);
    if (columns && columns.roster === hour?.roster) {
      for (const [key, column] of columns.columns) hour.columns.set(key, column);
    }
    await columnOf(found, group, signal);
    if (signal.aborted) return;
    draw(found, measure, group);
    trouble.value = null;
  } finally {
    window.clearTimeout(slow);
    if (!signal.aborted) loading.value = false;
  }
}

/** False where something has to be read first. */
function draw(at: number | null, measure: string, group: string): boolean {
  const hour = at === null ? undefined : kept.get(at);
  const values = hour?.values.get(measure);
  const named = fleet.peek()?.measures.find((each) => each.name === measure);
  if (at === null || !hour || !values || !named || !(group === "" || hour.columns.has(group))) return false;
  const column = hour.columns.get(group) ?? null;
  const used = column !== null && (column.codes === null || column.values.length > 0);
  const { names, silent } = hour;
  shown.value = { at, names, measure: named, values, silent, column: used ? column : null, group };
  return true;
}

let fleetRead: Promise<void> | null = null;

/** The lake as a whole, read once. */
function known(): Promise<void> {
  fleetRead ??= api.fleet().then(
    (found) => void (fleet.value = found),
    (error: unknown) => {
      fleetRead = null;
      throw error;
    },
  );
  return fleetRead;
}

/** After the drawing, and at rest: the other measures and attributes of the hour, so that no change of them has to be
 * waited for. */
async function readRest(at: number, signal: AbortSignal): Promise<void> {
  const hour = kept.get(at);
  if (!hour) return;
  if (hour.values.size < (fleet.peek()?.measures.length ?? 0)) keep(await api.cells(at, "", hour.roster, signal));
  if (!kept.get(at)?.complete) await readColumns(at, [], signal);
  if (histogram.peek() === null) histogram.value = await api.histogram(signal);
  chooseGroup(at);
}

/** A fleet without the attribute of the grouping is grouped by one that it has. */
function chooseGroup(at: number): void {
  const { group } = state.peek();
  const has = (key: string): boolean => (kept.get(at)?.columns.get(key)?.values.length ?? 0) > 0;
  if (group !== "zone" || has("zone")) return;
  const other = PREFERRED.find(has);
  if (other) change({ group: other }, "replace");
}

export function startFleet(): void {
  let abort = new AbortController();
  let rest = 0;
  const run = (at: number | null, measure: string, group: string): void => {
    abort.abort();
    abort = new AbortController();
    const { signal } = abort;
    window.clearTimeout(rest);
    const failed = (error: unknown): void => {
      if (signal.aborted) return;
      trouble.value = errorMessage(error);
      rest = window.setTimeout(() => run(at, measure, group), RETRY_MS);
    };
    const settle = (): void => {
      const drawn = shown.peek();
      if (!drawn) return;
      rest = window.setTimeout(() => void readRest(drawn.at, signal).catch(failed), REST_MS);
    };
    if (draw(at, measure, group)) {
      loading.value = false;
      settle();
    } else void show(at, measure, group, signal).then(() => !signal.aborted && settle(), failed);
  };
  effect(() => {
    const { at, measure, group } = state.value;
    run(at ?? fleet.peek()?.hours.at(-1) ?? null, measure, group);
  });
  const stop = effect(() => {
    if (shown.value === null) return;
    queueMicrotask(() => stop());
    window.setTimeout(() => void readReport(), REST_MS);
  });
  window.setInterval(() => void reread(run), REREAD_MS);
}

/** New hours, and what came in the newest one. */
async function reread(run: (at: number | null, measure: string, group: string) => void): Promise<void> {
  if (document.hidden || fleet.peek() === null) return;
  try {
    fleet.value = await api.fleet();
    histogram.value = await api.histogram();
  } catch (error) {
    trouble.value = errorMessage(error);
    return;
  }
  const newest = fleet.peek()?.hours.at(-1);
  const { at, measure, group } = state.peek();
  if (newest === undefined || (at !== null && at !== newest)) return;
  kept.delete(newest);
  run(newest, measure, group);
}

async function readReport(): Promise<void> {
  try {
    report.value = await api.report();
  } catch (error) {
    trouble.value = errorMessage(error);
  }
  if (report.peek()?.state !== "ready") window.setTimeout(() => void readReport(), REPORT_MS);
}

/** All hours from the first to the last, also those without summaries. */
export const hours = computed<number[]>(() => {
  const known = fleet.value?.hours ?? [];
  if (known.length === 0) return [];
  const count = (known[known.length - 1] - known[0]) / HOUR_MS + 1;
  return Array.from({ length: count }, (_, i) => known[0] + i * HOUR_MS);
});

/** A value of another measure of the shown hour, where it was read. */
export function valueOfNode(node: number, measure: string): number | null {
  const now = shown.peek();
  const value = now ? kept.get(now.at)?.values.get(measure)?.[node] : undefined;
  return value === undefined || Number.isNaN(value) ? null : value;
}
