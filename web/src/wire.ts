/** What the server answers, as the browser sees it. Times are milliseconds of wall time since 1970. */

export interface Span {
  since: number;
  until: number;
}

export interface Loss {
  source: string;
  kind: string;
  count: number;
  text: string;
}

export interface RecordingInfo {
  version: number;
  /** Empty while nothing is recorded yet; young during the first minute. */
  state: "empty" | "young" | "ready";
  hint: string;
  node: string;
  kernel: string;
  arch: string;
  boot: string;
  cores: number;
  timezone: string;
  since: number;
  until: number;
  live: boolean;
  rate_hz: number;
  event_source: string;
  segments: number;
  lost: number;
  losses: Loss[];
  gaps: [number, number][];
  /** Sentences: which source is off, and what brings it back. */
  missing: string[];
  /** Files that could not be read. */
  skipped: string[];
  measures: string[];
  states: string[];
  cost: { cpu_percent: number; memory_mb: number } | null;
}

export interface CoresHeader extends Span {
  cells: number;
  cpus: number[];
  /** `matching` where a filter or a frame was asked for. */
  measure: string;
  full: number;
  unrecorded: number;
  states: string[];
}

/** Cores x cells, core by core: how much (0..full, or unrecorded) and which state of `states` rules the cell. */
export interface CoreGrid extends CoresHeader {
  values: Uint8Array;
  dominant: Uint8Array;
}

/** The worst second of one core in a stretch of time, and who ran then. */
export interface CellInfo extends Span {
  cpu: number;
  states: { name: string; permille: number }[];
  wait_ns: number | null;
  top: { comm: string; pid: number; share: number }[];
  samples: number;
}

export interface LaneSeries {
  name: string;
  title: string;
  values: (number | null)[];
  /** What was measured nearest before and after the window: a moment and its value. */
  before?: [number, number] | null;
  after?: [number, number] | null;
}

export interface Lane {
  name: string;
  title: string;
  unit: string;
  series: LaneSeries[];
}

export interface Lanes extends Span {
  cells: number;
  lanes: Lane[];
}

export type Severity = "critical" | "warning" | "info";

export interface NodeEvent {
  at: number;
  kind: string;
  severity: Severity;
  source: string;
  text: string;
  cpu: number | null;
  device: string | null;
  value: number | null;
  pid: number | null;
  comm: string | null;
  container: string | null;
  container_name: string | null;
}

export interface Events {
  events: NodeEvent[];
  total: number;
  truncated: boolean;
  /** Left out by a filter: they name another core, process or container. */
  elsewhere: number;
  /** Every kind that has events with the words that were asked for. */
  kinds: { kind: string; count: number }[];
}

export interface Mark {
  at: number;
  until: number;
  kind: string;
  severity: Severity;
  count: number;
  text: string;
}

export interface Incident extends Span {
  id: string;
  at: number;
  text: string;
  marks: number;
  cpus: number[];
  /** Waiting until the diagnosis in the background got to it. */
  state: "waiting" | "known" | "unknown";
  cause: string | null;
  title: string | null;
  severity: Severity | null;
  confidence: number | null;
  summary: string | null;
}

/** A flame graph as columns, parents first; node 0 is everything. */
export interface Flame extends Span {
  samples: number;
  weight_us: number;
  base_since: number | null;
  base_until: number | null;
  baseline: string;
  base_samples: number;
  base_weight_us: number;
  blind_spots: string[];
  differential: boolean;
  labels: { name: string[]; module: string[]; kind: string[] };
  label: number[];
  parent: number[];
  weight: number[];
  samples_of: number[];
  base_weight: number[];
  state: number[];
  states: string[];
  /** Frames too thin to be drawn. */
  dropped: number;
  changes: string[];
}

/** From the beginning of the first column; what is before `from` was not asked for. */
export interface SubsecondHeader extends Span {
  from: number;
  column_ms: number;
  rows: number;
  columns: number;
  most: number;
}

/** Columns x rows of sample counts, column by column; row 0 is the start of the column. */
export interface Subsecond extends SubsecondHeader {
  counts: Uint32Array;
}

export interface ProcessUse {
  comm: string;
  pid: number | null;
  cmdline: string | null;
  container: string | null;
  container_name: string | null;
  pod: string | null;
  pod_name: string | null;
  cgroup: string | null;
  share: number;
  seconds: number;
  per_cpu: [number, number][];
}

export interface Processes {
  processes: ProcessUse[];
  containers: ProcessUse[];
  total_seconds: number;
  left_out: number;
}

export interface Evidence {
  table: string;
  where: string;
  value: number | string | null;
  unit: string;
  column: string;
  how: string;
  since: string;
  until: string;
  since_ms: number;
  until_ms: number;
  cpu: number | null;
  match: Record<string, string>;
  functions: string[];
}

export interface ChainLink {
  role: "symptom" | "mechanism" | "culprit" | "root_cause" | "remedy";
  at: string;
  at_ms: number;
  text: string;
  evidence: Evidence[];
}

export interface Remedy {
  id: string;
  text: string;
  target: string;
  command: string;
  risk: string;
  reversible: boolean;
}

export interface Finding {
  cause: string;
  title: string;
  severity: Severity;
  confidence: number;
  why_not_sure: string[];
  summary: string;
  chain: ChainLink[];
  culprit: Record<string, string | number | null>;
  remedies: Remedy[];
}

export interface TextSpan {
  since: string;
  until: string;
  since_ms: number;
  until_ms: number;
}

export interface Diagnosis {
  version: number;
  node: string;
  window: TextSpan;
  focus: TextSpan;
  baseline: TextSpan | null;
  verdict: string;
  sentence: string;
  findings: Finding[];
  symptoms: ChainLink[];
  ruled_out: { cause: string; why: string }[];
  blind_spots: string[];
}

/** One heartbeat of a growing recording. */
export interface Pulse {
  since: number;
  until: number;
  live: boolean;
  lost: number;
  /** Files that are known to be unreadable. */
  skipped: number;
  incidents: number;
}
