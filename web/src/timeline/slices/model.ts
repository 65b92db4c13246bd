/** Slices of threads on cores: where each is, what it says, and who ran most. Pure. */
import { duration } from "../../format";
import type { Slices, Span } from "../../types";

/** Rows show who ran at views up to this length. */
export const LONGEST_VIEW_MS = 10_000;
const LONGEST_REQUEST_MS = 20_000;
const STEP_MS = 100;
/** Selections over slices have edges at multiples of this. */
export const FINE_MS = 10;

export function isShort(view: Span | null): boolean {
  return view !== null && view.until - view.since <= LONGEST_VIEW_MS;
}

/**
 * What to read for a view: a little more than it, so that panning draws at once. The span before is kept while it
 * covers the view and is not much longer.
 */
export function planSlices(view: Span, whole: Span, before: Span | null): Span {
  const [since, until] = [Math.max(view.since, whole.since), Math.min(view.until, whole.until)];
  const length = view.until - view.since;
  if (before && before.since <= since && before.until >= until && before.until - before.since <= 4 * length) {
    return before;
  }
  const margin = Math.min(length / 4, (LONGEST_REQUEST_MS - length) / 2);
  return {
    since: Math.max(whole.since, Math.floor((view.since - margin) / STEP_MS) * STEP_MS),
    until: Math.min(whole.until, Math.ceil((view.until + margin) / STEP_MS) * STEP_MS),
  };
}

/** Where the slices of each line of `cpus` begin, and where the last ones end. */
export function lineBounds(of: Slices): Int32Array {
  const known = bounds.get(of);
  if (known) return known;
  const found = new Int32Array(of.cpus.length + 1);
  for (let i = 0; i < of.count; i++) found[of.line[i] + 1]++;
  for (let line = 0; line < of.cpus.length; line++) found[line + 1] += found[line];
  bounds.set(of, found);
  return found;
}

const bounds = new WeakMap<Slices, Int32Array>();

/** The slice of a core at a moment (milliseconds); -1 where the core was not sampled. */
export function sliceAt(of: Slices, cpu: number, at: number): number {
  const line = of.cpus.indexOf(cpu);
  if (line < 0) return -1;
  const edges = lineBounds(of);
  const moment = (at - of.since) * 1000;
  let [low, high] = [edges[line], edges[line + 1] - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (of.start[middle] > moment) high = middle - 1;
    else low = middle + 1;
  }
  // Samples of a thread that changed its core may overlap by a part of what they stand for.
  for (let i = high; i >= edges[line]; i--) if (of.start[i] + of.length[i] > moment) return i;
  return -1;
}

/** The slice before (-1) or after (1) a moment on a core, by its place; -1 where there is none. */
export function neighbour(of: Slices, cpu: number, at: number, direction: 1 | -1): number {
  const line = of.cpus.indexOf(cpu);
  if (line < 0) return -1;
  const edges = lineBounds(of);
  const moment = (at - of.since) * 1000;
  if (direction > 0) {
    for (let i = edges[line]; i < edges[line + 1]; i++) if (of.start[i] > moment) return i;
    return -1;
  }
  for (let i = edges[line + 1] - 1; i >= edges[line]; i--) if (of.start[i] + of.length[i] <= moment) return i;
  return -1;
}

/** A slice, or (`state` is null) a moment at which the core was not sampled. */
export interface Slice extends Span {
  cpu: number;
  state: string | null;
  pid: number | null;
  tid: number | null;
  comm: string;
  frame: string;
  samples: number;
}

/** What is known of a core where it was not sampled. */
export const NOT_SAMPLED = { state: null, pid: null, tid: null, comm: "", frame: "", samples: 0 };

/** Whole milliseconds: a slice is as exact as its samples. */
export function describeSlice(of: Slices, index: number): Slice {
  const thread = of.thread[index];
  const frame = of.frame[index];
  const since = of.since + of.start[index] / 1000;
  return {
    since: Math.floor(since),
    until: Math.max(Math.floor(since) + 1, Math.ceil(since + of.length[index] / 1000)),
    cpu: of.cpus[of.line[index]],
    state: of.states[of.state[index]] ?? null,
    pid: thread < 0 ? null : of.pids[thread],
    tid: thread < 0 ? null : of.tids[thread],
    comm: thread < 0 ? "" : of.comms[thread],
    frame: frame < 0 ? "" : of.frames[frame],
    samples: of.caught[index],
  };
}

/** The time that has the samples of a slice and no others: a sample stands for what is before it. */
export function samplesOf({ since, until }: Span): Span {
  return { since: since + 1, until: until + 1 };
}

export const STATE_NAMES: Record<string, string> = {
  user: "user code",
  system: "kernel",
  softirq: "interrupts and softirqs",
  unknown: "stack not recorded",
  idle: "idle",
};

/** A slice in words: `kubelet 1234, kernel, in mem_cgroup_iter, 30 ms`. */
export function sliceText(slice: Slice): string {
  const long = duration(slice.until - slice.since);
  if (slice.pid === null) return `idle for ${long}`;
  const where = slice.frame ? `, in ${slice.frame}` : "";
  return `${slice.comm} ${slice.pid}, ${STATE_NAMES[slice.state ?? ""] ?? slice.state}${where}, ${long}`;
}

/** A process in view, by all of its slices. */
export interface Runner {
  pid: number;
  /** The name that most of its time has. */
  comm: string;
  threads: number;
  cpus: number[];
  /** Milliseconds: all of it, that in the kernel, and the longest without a pause on one core. */
  ms: number;
  kernelMs: number;
  longest: Slice;
}

/** The processes that ran in view, the longest first. The last answer is kept: label, table and keys all ask. */
export function runnersIn(of: Slices, view: Span): Runner[] {
  const known = lastRunners.get(of);
  if (known && known.view.since === view.since && known.view.until === view.until) return known.runners;
  const runners = tallied(of, view);
  lastRunners.set(of, { view, runners });
  return runners;
}

const lastRunners = new WeakMap<Slices, { view: Span; runners: Runner[] }>();

function tallied(of: Slices, view: Span): Runner[] {
  const found = new Map<number, Tally>();
  const usedBy = new Float64Array(of.pids.length);
  const [first, last] = [(view.since - of.since) * 1000, (view.until - of.since) * 1000];
  const kernel = of.states.map((state) => state === "system" || state === "softirq");
  // Neighbours of one process: the kernel and the user part of a stretch, and threads that follow each other.
  let [held, heldEnd, heldLine, heldPid, heldStart] = [0, -1, -1, -1, -1];
  for (let i = 0; i < of.count; i++) {
    const thread = of.thread[i];
    const used = Math.min(of.start[i] + of.length[i], last) - Math.max(of.start[i], first);
    if (thread < 0 || used <= 0) continue;
    const pid = of.pids[thread];
    let tally = found.get(pid);
    if (!tally) found.set(pid, (tally = new Tally(pid)));
    const goes = heldPid === pid && heldLine === of.line[i] && heldEnd === of.start[i];
    held = goes ? held + used : used;
    [heldPid, heldLine, heldEnd] = [pid, of.line[i], of.start[i] + of.length[i]];
    if (!goes) heldStart = i;
    usedBy[thread] += used;
    tally.add(of.line[i], used, kernel[of.state[i]]);
    if (held > tally.most) [tally.most, tally.mostFrom, tally.mostTo] = [held, heldStart, i];
  }
  usedBy.forEach((used, thread) => {
    if (used > 0) found.get(of.pids[thread])?.addThread(of.comms[thread], of.tids[thread], used);
  });
  return [...found.values()].map((tally) => tally.total(of)).sort((a, b) => b.ms - a.ms);
}

class Tally {
  private us = 0;
  private kernelUs = 0;
  private readonly names = new Map<string, number>();
  private readonly tids = new Set<number>();
  /** In the order of slices, so that each comes once. */
  private readonly lines: number[] = [];
  /** The longest stretch without a pause: its length, and its first and last slice. */
  most = 0;
  mostFrom = 0;
  mostTo = 0;

  constructor(private readonly pid: number) {}

  add(line: number, used: number, kernel: boolean): void {
    this.us += used;
    if (kernel) this.kernelUs += used;
    if (this.lines.at(-1) !== line) this.lines.push(line);
  }

  addThread(comm: string, tid: number, used: number): void {
    this.names.set(comm, (this.names.get(comm) ?? 0) + used);
    this.tids.add(tid);
  }

  total(of: Slices): Runner {
    const [comm] = [...this.names].reduce((a, b) => (b[1] > a[1] ? b : a));
    return {
      pid: this.pid,
      comm,
      threads: this.tids.size,
      cpus: this.lines.map((line) => of.cpus[line]),
      ms: this.us / 1000,
      kernelMs: this.kernelUs / 1000,
      longest: { ...describeSlice(of, this.mostFrom), until: describeSlice(of, this.mostTo).until },
    };
  }
}

/** The hue of a process, in degrees: the same wherever it runs, and far from that of its neighbours by number. */
export function hueOfProcess(pid: number): number {
  // The golden angle spreads consecutive numbers.
  return (pid * 137.508) % 360;
}

/** Slices by thread instead of by core: `cpus` are the numbers of rows, and `core` is where each slice ran. */
export interface ThreadSlices extends Slices {
  /** Of each row. */
  rows: { pid: number; tid: number; comm: string; ms: number }[];
  core: number[];
  /** Threads that ran for less than those of the rows. */
  left: number;
}

/** A row for each thread, the one that ran longest in view first; with `tid`, of that one alone. */
export function byThread(of: Slices, view: Span, most: number, tid: number | null = null): ThreadSlices {
  const [first, last] = [(view.since - of.since) * 1000, (view.until - of.since) * 1000];
  const ran = new Map<string, { pid: number; tid: number; comm: string; ms: number; slices: number[] }>();
  for (let i = 0; i < of.count; i++) {
    const thread = of.thread[i];
    if (thread < 0 || (tid !== null && of.tids[thread] !== tid)) continue;
    const key = `${of.pids[thread]} ${of.tids[thread]}`;
    let known = ran.get(key);
    if (!known) ran.set(key, (known = { pid: of.pids[thread], tid: of.tids[thread], comm: "", ms: 0, slices: [] }));
    known.ms += Math.max(0, Math.min(of.start[i] + of.length[i], last) - Math.max(of.start[i], first)) / 1000;
    known.comm = of.comms[thread];
    known.slices.push(i);
  }
  const rows = [...ran.values()].filter((row) => row.ms > 0).sort((a, b) => b.ms - a.ms || a.tid - b.tid);
  const shown = rows.slice(0, most);
  const order = shown.flatMap((row, line) =>
    row.slices.sort((a, b) => of.start[a] - of.start[b]).map((index): [number, number] => [line, index]),
  );
  const take = <Numbers extends Uint32Array | Int32Array | Uint16Array | Uint8Array>(from: Numbers): Numbers => {
    const kind = from.constructor as unknown as { from: (values: number[]) => Numbers };
    return kind.from(order.map(([, index]) => from[index]));
  };
  return {
    ...of,
    cpus: shown.map((_, line) => line),
    count: order.length,
    start: take(of.start),
    length: take(of.length),
    thread: take(of.thread),
    frame: take(of.frame),
    caught: take(of.caught),
    state: take(of.state),
    line: Uint16Array.from(order, ([line]) => line),
    rows: shown.map(({ pid, tid: number, comm, ms }) => ({ pid, tid: number, comm, ms })),
    core: order.map(([, index]) => of.cpus[of.line[index]]),
    left: rows.length - shown.length,
  };
}
