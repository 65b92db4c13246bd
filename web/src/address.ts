/** The whole state of the page and its form in the address bar. Pure: `state.ts` connects it to the browser. */
import { NO_FILTERS, type Baseline, type Filters, type FrameName } from "./api";
import { parseCpus, printCpus } from "./cpulist";

export const MEASURES = ["busy", "system", "softirq", "user", "steal", "iowait", "wait"] as const;
export type Measure = (typeof MEASURES)[number];
/** Measures that samples have too: nothing is sampled in stolen or idle time, or while a task waits for the core. */
export const SAMPLED_MEASURES: readonly Measure[] = ["busy", "system", "softirq", "user"];
export const TABS = ["flame", "difference", "subsecond", "processes", "events", "diagnosis", "interrupts"] as const;
export type Tab = (typeof TABS)[number];
export const BASELINES = ["none", "before", "others", "window"] as const;
export const COLOURS = ["state", "module", "difference"] as const;
export type FlameColour = (typeof COLOURS)[number];

export interface PageState {
  /** The view: fixed by since and until, or the last so many milliseconds, or (all null) everything there is. */
  since: number | null;
  until: number | null;
  last: number | null;
  /** The selection: a time range and cores; null is nothing selected. */
  s0: number | null;
  s1: number | null;
  cpus: number[] | null;
  /** The cores that are shown at all (a filter); null is every core. */
  cores: number[] | null;
  measure: Measure;
  tab: Tab;
  baseline: Baseline;
  b0: number | null;
  b1: number | null;
  comm: string;
  pid: string;
  container: string;
  pod: string;
  stack: string;
  kind: Filters["kind"];
  /** The flame graph: frames from the outermost to the one that fills the width. */
  root: string[];
  search: string;
  hide: string[];
  /** Flames grow upwards; else icicles hang down. */
  up: boolean;
  colour: FlameColour;
  /** Of the sub-second view. */
  column: number;
  rows: number;
  /** Events: a search in their text, and their kinds (none is every kind). */
  find: string;
  kinds: string[];
  /** "When did this run?": the frame whose seconds are painted on the heatmap. */
  paint: FrameName | null;
  /** Which lanes of `LANES` are open. */
  lanes: string[];
  utc: boolean;
}

interface Field<Value> {
  fallback: Value;
  /** Undefined where the text is invalid: the field keeps its default. */
  parse: (text: string) => Value | undefined;
  print: (value: Value) => string;
}

const moment: Field<number | null> = {
  fallback: null,
  parse: (text) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined),
  print: (value) => String(Math.round(value ?? 0)),
};

const cpuList: Field<number[] | null> = {
  fallback: null,
  parse: (text) => parseCpus(text) ?? undefined,
  print: (value) => printCpus(value ?? []),
};

const text: Field<string> = { fallback: "", parse: (value) => value, print: (value) => value };

function choice<Value extends string>(fallback: Value, all: readonly Value[]): Field<Value> {
  return { fallback, parse: (value) => all.find((each) => each === value), print: (value) => value };
}

function flag(fallback: boolean): Field<boolean> {
  return {
    fallback,
    parse: (value) => (value === "1" ? true : value === "0" ? false : undefined),
    print: (value) => (value ? "1" : "0"),
  };
}

function whole(fallback: number, least: number, most: number): Field<number> {
  return {
    fallback,
    parse: (value) => {
      const number = /^\d{1,9}$/.test(value) ? Number(value) : NaN;
      return number >= least && number <= most ? number : undefined;
    },
    print: String,
  };
}

/** A list of texts that may hold anything: parts are escaped, then joined by `;`. */
function list(fallback: string[]): Field<string[]> {
  return {
    fallback,
    parse: (value) => (value === "" ? [] : value.split(";").map((part) => unescapePart(part))),
    print: (value) => value.map((part) => part.replaceAll("%", "%25").replaceAll(";", "%3B")).join(";"),
  };
}

function unescapePart(part: string): string {
  return part.replaceAll("%3B", ";").replaceAll("%25", "%");
}

const parts = list([]);
const frame: Field<FrameName | null> = {
  fallback: null,
  parse: (value) => {
    const [name, module, kind] = parts.parse(value) ?? [];
    return name ? { name, module: module ?? "", kind: kind ?? "" } : undefined;
  },
  print: (value) => (value ? parts.print([value.name, value.module, value.kind]) : ""),
};

/** One line per piece of state. The key is its name in the address. */
const FIELDS: { [Key in keyof PageState]: Field<PageState[Key]> } = {
  since: moment,
  until: moment,
  last: moment,
  s0: moment,
  s1: moment,
  cpus: cpuList,
  cores: cpuList,
  measure: choice<Measure>("busy", MEASURES),
  tab: choice<Tab>("flame", TABS),
  baseline: choice<Baseline>("before", BASELINES),
  b0: moment,
  b1: moment,
  comm: text,
  pid: text,
  container: text,
  pod: text,
  stack: text,
  kind: choice<Filters["kind"]>("", ["", "kernel", "user"]),
  root: parts,
  search: text,
  hide: parts,
  up: flag(false),
  colour: choice<FlameColour>("state", COLOURS),
  column: whole(1000, 10, 60_000),
  rows: whole(50, 2, 500),
  find: text,
  kinds: parts,
  paint: frame,
  lanes: list(["memcgs"]),
  utc: flag(false),
};

const KEYS = Object.keys(FIELDS) as (keyof PageState)[];

export function defaultState(): PageState {
  return Object.fromEntries(KEYS.map((key) => [key, FIELDS[key].fallback])) as unknown as PageState;
}

/** The state of a link; missing and invalid fields have their default. */
export function parseAddress(hash: string): PageState {
  const state = defaultState() as unknown as Record<string, unknown>;
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  for (const key of KEYS) {
    const text = params.get(key);
    const value = text === null ? undefined : FIELDS[key].parse(text);
    if (value !== undefined) state[key] = value;
  }
  return consistent(state as unknown as PageState);
}

/** `#since=...&until=...`: only what differs from the defaults, in a fixed order. */
export function printAddress(state: PageState): string {
  const params = new URLSearchParams();
  for (const key of KEYS) {
    const { fallback, print } = FIELDS[key] as Field<unknown>;
    if (state[key] !== null && print(state[key]) !== (fallback === null ? null : print(fallback))) {
      params.set(key, print(state[key]));
    }
  }
  const text = params.toString().replaceAll("%2C", ",").replaceAll("%3B", ";").replaceAll("%3A", ":");
  return text ? `#${text}` : "";
}

/** Half a range is no range, and a range has a length. */
export function consistent(state: PageState): PageState {
  const fixed = { ...state };
  if (!isRange(fixed.since, fixed.until)) fixed.since = fixed.until = null;
  if (fixed.since !== null) fixed.last = null;
  if (!isRange(fixed.s0, fixed.s1)) fixed.s0 = fixed.s1 = null;
  if (!isRange(fixed.b0, fixed.b1)) fixed.b0 = fixed.b1 = null;
  if (fixed.s0 === null) fixed.cpus = null;
  return fixed;
}

function isRange(since: number | null, until: number | null): boolean {
  return since !== null && until !== null && until > since;
}

export function filtersOf(state: PageState): Filters {
  const { comm, pid, container, pod, stack, kind } = state;
  return { ...NO_FILTERS, comm, pid, container, pod, stack, kind };
}

/** With a filter the heatmap is made of samples: a measure that they do not have is replaced by busy time. */
export function measureOf(state: PageState): Measure {
  return isFiltered(filtersOf(state)) && !SAMPLED_MEASURES.includes(state.measure) ? "busy" : state.measure;
}

export function isFiltered(filters: Filters): boolean {
  return Object.values(filters).some((value) => value !== "");
}
