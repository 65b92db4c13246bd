/** The whole state of the page and its form in the address bar. Pure: `state.ts` connects it to the browser. */
import { NO_FILTERS, type Baseline, type Filters, type FrameName } from "./api";
import { parseCpus, printCpus } from "./cpulist";
import { PROCESS_SORTS, type ProcessSort } from "./panels/process-rows";
import {
  choice,
  defaultsOf,
  flag,
  list,
  moment,
  offset,
  parseFields,
  printFields,
  text,
  whole,
  type Field,
  type Fields,
} from "./fields";

/** In place of a lane's name: the lane that deviates most. */
export const AUTO_LANE = "auto";

export const MEASURES = [
  "unusual",
  "stall",
  "deviation",
  "busy",
  "system",
  "softirq",
  "user",
  "steal",
  "iowait",
  "wait",
] as const;
export type Measure = (typeof MEASURES)[number];
/** Measures that samples have too: nothing is sampled in stolen or idle time, or while a task waits for the core. */
export const SAMPLED_MEASURES: readonly Measure[] = ["busy", "system", "softirq", "user"];
export const TABS = ["flame", "difference", "subsecond", "processes", "events", "diagnosis", "interrupts"] as const;
export type Tab = (typeof TABS)[number];
export const BASELINES = ["none", "before", "others", "window", "other"] as const;
export const COLOURS = ["state", "module", "difference"] as const;
export const ORDERS = ["number", "worst"] as const;
export type FlameColour = (typeof COLOURS)[number];
export const GROUPINGS = ["program", "process", "container", "pod"] as const;
export type Grouping = (typeof GROUPINGS)[number];
export const GRAPHS = ["stacks", "inverted", "sandwich"] as const;
export type Graph = (typeof GRAPHS)[number];

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
  /** Rows of the heatmap: their order, the cores at the top, and whether all are high enough to be read. */
  order: (typeof ORDERS)[number];
  pinned: number[] | null;
  tall: boolean;
  /** Where the view is short enough, rows show who ran; else always the measure. */
  slices: boolean;
  /** The process (pid) whose slices are highlighted. */
  marked: number | null;
  /** What has a track of its own below the cores: `pid:4711`, `pod:shop/web-0`. */
  tracks: string[];
  /** What the diagnosis stays with while its evidence is followed; null is what is analysed. */
  d0: number | null;
  d1: number | null;
  /** The cores that were selected with it. */
  dc: number[] | null;
  /** Which step of the diagnosis is shown, from 1 on; 0 is none. */
  step: number;
  tab: Tab;
  baseline: Baseline;
  b0: number | null;
  b1: number | null;
  /** How far the recording to compare with is moved: its time minus this one's; null is chosen by both. */
  shift: number | null;
  comm: string;
  pid: string;
  container: string;
  pod: string;
  stack: string;
  kind: Filters["kind"];
  /** The flame graph: frames from the outermost to the one that fills the width; where callers hang below, of those. */
  root: string[];
  callerRoot: string[];
  graph: Graph;
  /** The function whose places are outlined, and that a sandwich is of. */
  frame: FrameName | null;
  search: string;
  hide: string[];
  /** Flames grow upwards; else icicles hang down. */
  up: boolean;
  colour: FlameColour;
  /** Of the sub-second view. */
  column: number;
  rows: number;
  /** Processes: what CPU time is summed by, and the order of the table. */
  by: Grouping;
  sort: ProcessSort;
  ascending: boolean;
  /** Events: a search in their text, their kinds (none is every kind), and whether repeated lines are folded. */
  find: string;
  fold: boolean;
  kinds: string[];
  /** "When did this run?": the frame whose seconds are painted on the heatmap. */
  paint: FrameName | null;
  /** Which lanes of `LANES` are open, or `AUTO_LANE`. */
  lanes: string[];
  utc: boolean;
}

const cpuList: Field<number[] | null> = {
  fallback: null,
  parse: (text) => parseCpus(text) ?? undefined,
  print: (value) => printCpus(value ?? []),
};

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
const FIELDS: Fields<PageState> = {
  since: moment,
  until: moment,
  last: moment,
  s0: moment,
  s1: moment,
  cpus: cpuList,
  cores: cpuList,
  measure: choice<Measure>("unusual", MEASURES),
  order: choice<PageState["order"]>("number", ORDERS),
  pinned: cpuList,
  tall: flag(false),
  slices: flag(true),
  marked: moment,
  tracks: parts,
  d0: moment,
  d1: moment,
  dc: cpuList,
  step: whole(0, 0, 99),
  tab: choice<Tab>("flame", TABS),
  baseline: choice<Baseline>("before", BASELINES),
  b0: moment,
  b1: moment,
  shift: offset,
  comm: text,
  pid: text,
  container: text,
  pod: text,
  stack: text,
  kind: choice<Filters["kind"]>("", ["", "kernel", "user"]),
  root: parts,
  callerRoot: parts,
  graph: choice<Graph>("stacks", GRAPHS),
  frame,
  search: text,
  hide: parts,
  up: flag(false),
  colour: choice<FlameColour>("state", COLOURS),
  column: whole(1000, 10, 60_000),
  rows: whole(50, 2, 500),
  by: choice<Grouping>("program", GROUPINGS),
  sort: choice<ProcessSort>("cpu", PROCESS_SORTS),
  ascending: flag(false),
  find: text,
  fold: flag(true),
  kinds: parts,
  paint: frame,
  lanes: list([AUTO_LANE]),
  utc: flag(false),
};

export function defaultState(): PageState {
  return defaultsOf(FIELDS);
}

export function parseAddress(hash: string): PageState {
  return consistent(parseFields(FIELDS, hash));
}

export function printAddress(state: PageState): string {
  return printFields(FIELDS, state);
}

/** Half a range is no range, and a range has a length. */
export function consistent(state: PageState): PageState {
  const fixed = { ...state };
  if (!isRange(fixed.since, fixed.until)) fixed.since = fixed.until = null;
  if (fixed.since !== null) fixed.last = null;
  if (!isRange(fixed.s0, fixed.s1)) fixed.s0 = fixed.s1 = null;
  if (!isRange(fixed.b0, fixed.b1)) fixed.b0 = fixed.b1 = null;
  if (!isRange(fixed.d0, fixed.d1)) fixed.d0 = fixed.d1 = null;
  if (fixed.d0 === null) {
    fixed.dc = null;
    fixed.step = 0;
  }
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
