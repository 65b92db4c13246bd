/** The typed client of the server: one function per endpoint, every one can be aborted, every error is a sentence. */
import { readCores, readSubsecond } from "./framed";
import { nameQuestion } from "./progress";
import { Shared } from "./shared";
import type {
  CellInfo,
  CoreGrid,
  Diagnosis,
  Events,
  Flame,
  Incident,
  Lanes,
  Mark,
  Processes,
  RecordingInfo,
  Span,
  Subsecond,
} from "./wire";

export interface Filters {
  comm: string;
  pid: string;
  container: string;
  pod: string;
  stack: string;
  kind: "" | "kernel" | "user";
}

export const NO_FILTERS: Filters = { comm: "", pid: "", container: "", pod: "", stack: "", kind: "" };

export type Baseline = "none" | "before" | "others" | "window";

/** What an analysing endpoint looks at. An empty `cpus` is every core. */
export interface Scope extends Span {
  cpus: string;
  filters: Filters;
}

export interface FlameScope extends Scope {
  baseline: Baseline;
  base: Span | null;
  least?: number;
}

/** What of a flame graph is seen: the frames that it is zoomed into, those that are hidden. */
export interface Seen {
  root: string[];
  hide: string[];
}

export interface FrameName {
  name: string;
  module: string;
  kind: string;
}

/** The server's answer was no: `status` 0 means that it didn't answer at all. */
export class ServerError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

type Value = string | number | null | undefined;

/** The words of a question, without those that say nothing. */
export function question(parameters: Record<string, Value>): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") words.set(name, String(value));
  }
  const text = words.toString();
  return text ? `?${text}` : "";
}

async function ask(path: string, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    const headers = { Accept: "application/json", "X-Exhume-Ask": nameQuestion(path, signal) };
    response = await fetch(`./api/${path}`, { signal, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ServerError(0, "The server doesn't answer. Is “exhume serve” still running?");
  }
  if (!response.ok) throw new ServerError(response.status, await sentenceOf(response));
  return response;
}

async function sentenceOf(response: Response): Promise<string> {
  const text = await response.text();
  try {
    const { detail } = JSON.parse(text) as { detail?: unknown };
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((each: { msg?: string }) => each.msg ?? "").join("; ");
  } catch {
    // Not JSON: the status has to say it.
  }
  if (response.status === 401) return "This page needs its token: open the whole address that exhume printed.";
  return `The server answered ${response.status} ${response.statusText}.`;
}

async function json<Answer>(path: string, signal?: AbortSignal): Promise<Answer> {
  return (await (await ask(path, signal)).json()) as Answer;
}

function span({ since, until }: Span): Record<string, Value> {
  return { since: Math.round(since), until: Math.round(until) };
}

function scoped(scope: Scope): Record<string, Value> {
  return { ...span(scope), cpus: scope.cpus, ...scope.filters };
}

export function flameQuestion(scope: FlameScope): string {
  const base = scope.baseline === "window" ? scope.base : null;
  return question({
    ...scoped(scope),
    baseline: scope.baseline,
    base_since: base && Math.round(base.since),
    base_until: base && Math.round(base.until),
    least: scope.least,
  });
}

const grids = new Shared<CoreGrid>(12);

/** Overview and heatmap often want the same, and undo wants what was just there. */
function grid(path: string, signal?: AbortSignal): Promise<CoreGrid> {
  nameQuestion(path, signal);
  return grids.read(path, async (whole) => readCores(await (await ask(path, whole)).arrayBuffer()), signal);
}

export const api = {
  recording: (signal?: AbortSignal): Promise<RecordingInfo> => json("recording", signal),

  cores: (scope: Scope, cells: number, measure: string, signal?: AbortSignal): Promise<CoreGrid> =>
    grid(`cores${question({ ...scoped(scope), cells, measure })}`, signal),

  frameTimes(scope: Scope, cells: number, frame: FrameName, signal?: AbortSignal): Promise<CoreGrid> {
    const words = { ...scoped(scope), cells, name: frame.name, module: frame.module, kind_of_frame: frame.kind };
    return grid(`frame-times${question(words)}`, signal);
  },

  cell: (at: number, cpu: number, spanMs: number, measure: string, signal?: AbortSignal): Promise<CellInfo> =>
    json(`cell${question({ at: Math.round(at), cpu, span: Math.round(spanMs), measure })}`, signal),

  lanes: (window: Span, cells: number, names: readonly string[], signal?: AbortSignal): Promise<Lanes> =>
    json(`lanes${question({ ...span(window), cells, names: names.join(",") })}`, signal),

  events: (
    scope: Scope,
    options: { kinds?: string; text?: string; limit?: number },
    signal?: AbortSignal,
  ): Promise<Events> => json(`events${question({ ...scoped(scope), ...options })}`, signal),

  async marks(scope: Scope, cells: number, signal?: AbortSignal): Promise<Mark[]> {
    return (await json<{ marks: Mark[] }>(`marks${question({ ...scoped(scope), cells })}`, signal)).marks;
  },

  async incidents(signal?: AbortSignal): Promise<Incident[]> {
    return (await json<{ incidents: Incident[] }>("incidents", signal)).incidents;
  },

  flame: (scope: FlameScope, signal?: AbortSignal): Promise<Flame> => json(`flame${flameQuestion(scope)}`, signal),

  async subsecond(scope: Scope, columnMs: number, rows: number, signal?: AbortSignal): Promise<Subsecond> {
    const answer = await ask(`subsecond${question({ ...scoped(scope), column_ms: columnMs, rows })}`, signal);
    return readSubsecond(await answer.arrayBuffer());
  },

  processes: (scope: Scope, limit: number, signal?: AbortSignal): Promise<Processes> =>
    json(`processes${question({ ...scoped(scope), limit })}`, signal),

  diagnosis: (window: Span, signal?: AbortSignal): Promise<Diagnosis> =>
    json(`diagnosis${question(span(window))}`, signal),

  /** Of an incident, as its mark on the timeline tells it. */
  diagnosisOf: (incident: string, signal?: AbortSignal): Promise<Diagnosis> =>
    json(`diagnosis${question({ incident })}`, signal),

  /** The address of a file to save: a plain link, so that the browser streams it to disk. */
  exportAddress(format: "folded" | "pprof" | "speedscope" | "svg" | "html", scope: FlameScope, seen: Seen): string {
    const words = new URLSearchParams(flameQuestion(scope));
    for (const name of seen.root) words.append("root", name);
    for (const name of seen.hide) words.append("hide", name);
    return `./api/export/${format}?${words}`;
  },
};
