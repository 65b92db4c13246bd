/** The typed client of the server: one function per endpoint. */
import { readCores, readSlices, readSubsecond } from "./binary";
import { json, queryString, request, type Value } from "./http";
import { requestId } from "./progress";
import { RequestCache } from "./request-cache";
import type {
  CellInfo,
  CoreGrid,
  Diagnosis,
  Events,
  Flame,
  Incident,
  Interrupts,
  Lanes,
  Mark,
  Processes,
  RecordingInfo,
  Slices,
  Span,
  Subsecond,
} from "./types";

export interface Filters {
  comm: string;
  pid: string;
  container: string;
  pod: string;
  stack: string;
  kind: "" | "kernel" | "user";
}

export const NO_FILTERS: Filters = { comm: "", pid: "", container: "", pod: "", stack: "", kind: "" };

export type Baseline = "none" | "before" | "others" | "window" | "other";

/** The recording that is shown, or the one to compare it with. */
export type Which = "this" | "other";

/** Time, cores and filters of a request. An empty `cpus` is every core. */
export interface Scope extends Span {
  cpus: string;
  filters: Filters;
  recording?: Which;
}

export interface FlameScope extends Scope {
  baseline: Baseline;
  base: Span | null;
  least?: number;
}

/** What a flame graph shows: the frames that it is zoomed into, those that are hidden, and which way it grows. */
export interface FlameView {
  root: string[];
  hide: string[];
  up: boolean;
}

export type ExportFormat = "folded" | "pprof" | "speedscope" | "svg" | "html";

export interface FrameName {
  name: string;
  module: string;
  kind: string;
}

function span({ since, until }: Span): Record<string, Value> {
  return { since: Math.round(since), until: Math.round(until) };
}

function scoped(scope: Scope): Record<string, Value> {
  return { ...span(scope), cpus: scope.cpus, ...scope.filters, recording: scope.recording };
}

export function flameQuery(scope: FlameScope): string {
  const base = scope.baseline === "window" || scope.baseline === "other" ? scope.base : null;
  return queryString({
    ...scoped(scope),
    baseline: scope.baseline,
    base_since: base && Math.round(base.since),
    base_until: base && Math.round(base.until),
    least: scope.least,
  });
}

const grids = new RequestCache<CoreGrid>(12);

/** Cached: overview and heatmap often need the same grid, and undo the previous one. */
function grid(path: string, signal?: AbortSignal): Promise<CoreGrid> {
  requestId(path, signal);
  return grids.read(path, async (whole) => readCores(await (await request(path, whole)).arrayBuffer()), signal);
}

export const api = {
  recording: (signal?: AbortSignal): Promise<RecordingInfo> => json("recording", signal),

  /** The one to compare with. */
  otherRecording: (signal?: AbortSignal): Promise<RecordingInfo> => json("recording?recording=other", signal),

  cores: (scope: Scope, cells: number, measure: string, signal?: AbortSignal): Promise<CoreGrid> =>
    grid(`cores${queryString({ ...scoped(scope), cells, measure })}`, signal),

  frameTimes(scope: Scope, cells: number, frame: FrameName, signal?: AbortSignal): Promise<CoreGrid> {
    const params = { ...scoped(scope), cells, name: frame.name, module: frame.module, kind_of_frame: frame.kind };
    return grid(`frame-times${queryString(params)}`, signal);
  },

  cell: (at: number, cpu: number, spanMs: number, measure: string, signal?: AbortSignal): Promise<CellInfo> =>
    json(`cell${queryString({ at: Math.round(at), cpu, span: Math.round(spanMs), measure })}`, signal),

  async slices(scope: Scope, signal?: AbortSignal): Promise<Slices> {
    return readSlices(await (await request(`slices${queryString(scoped(scope))}`, signal)).arrayBuffer());
  },

  lanes: (window: Span, cells: number, names: readonly string[], signal?: AbortSignal): Promise<Lanes> =>
    json(`lanes${queryString({ ...span(window), cells, names: names.join(",") })}`, signal),

  events: (
    scope: Scope,
    options: { kinds?: string; text?: string; limit?: number },
    signal?: AbortSignal,
  ): Promise<Events> => json(`events${queryString({ ...scoped(scope), ...options })}`, signal),

  async marks(scope: Scope, cells: number, signal?: AbortSignal): Promise<Mark[]> {
    return (await json<{ marks: Mark[] }>(`marks${queryString({ ...scoped(scope), cells })}`, signal)).marks;
  },

  async incidents(signal?: AbortSignal, recording?: Which): Promise<Incident[]> {
    return (await json<{ incidents: Incident[] }>(`incidents${queryString({ recording })}`, signal)).incidents;
  },

  flame: (scope: FlameScope, signal?: AbortSignal): Promise<Flame> => json(`flame${flameQuery(scope)}`, signal),

  async subsecond(scope: Scope, columnMs: number, rows: number, signal?: AbortSignal): Promise<Subsecond> {
    const answer = await request(`subsecond${queryString({ ...scoped(scope), column_ms: columnMs, rows })}`, signal);
    return readSubsecond(await answer.arrayBuffer());
  },

  processes: (scope: Scope, limit: number, signal?: AbortSignal, by = "process"): Promise<Processes> =>
    json(`processes${queryString({ ...scoped(scope), by, limit })}`, signal),

  interrupts: (window: Span, cpus: string, limit: number, signal?: AbortSignal): Promise<Interrupts> =>
    json(`interrupts${queryString({ ...span(window), cpus, limit })}`, signal),

  diagnosis: (window: Span, signal?: AbortSignal): Promise<Diagnosis> =>
    json(`diagnosis${queryString(span(window))}`, signal),

  /** Of an incident: the diagnosis of its mark on the timeline. */
  diagnosisOf: (incident: string, signal?: AbortSignal): Promise<Diagnosis> =>
    json(`diagnosis${queryString({ incident })}`, signal),

  /** The address of a file to save: a plain link, so that the browser streams it to disk. */
  exportAddress(format: ExportFormat, scope: FlameScope, view: FlameView): string {
    const params = new URLSearchParams(flameQuery(scope));
    for (const name of view.root) params.append("root", name);
    for (const name of view.hide) params.append("hide", name);
    if (view.up) params.set("up", "1");
    return `./api/export/${format}?${params}`;
  },
};
