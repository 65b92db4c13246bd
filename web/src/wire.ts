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
  node: string;
  kernel: string;
  cores: number;
  cpus: number[];
  boot: string;
  /** Null where nothing is recorded yet. */
  since: number | null;
  until: number | null;
  live: boolean;
  rate_hz: number;
  samples: number;
  bytes: number;
  segments: number;
  lost: number;
  gaps: [number, number][];
  losses: Loss[];
  /** Sentences: which source is off, and what brings it back. */
  missing: string[];
  measures: string[];
  cost: { cpu_percent: number | null; memory_mb: number | null };
}

export interface CoresHeader extends Span {
  cells: number;
  cpus: number[];
  measure: string;
  unit: string;
  states: string[];
}

/** Cores x cells, core by core: how much (0..250, 255 = not recorded) and which state of `states` rules the cell. */
export interface CoreGrid extends CoresHeader {
  values: Uint8Array;
  dominant: Uint8Array;
}

export const FULL = 250;
export const NOT_RECORDED = 255;

export interface CellInfo extends Span {
  cpu: number;
  /** Permille of the cell's time. */
  states: Record<string, number>;
  /** Seconds waited per second; null where it is not known. */
  wait: number | null;
  top: { comm: string; pid: number; share: number }[];
}

export interface LaneSeries {
  name: string;
  title: string;
  values: (number | null)[];
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
  container_name: string | null;
}

export interface Events {
  events: NodeEvent[];
  total: number;
  truncated: boolean;
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
  kind: string;
  text: string;
  cpus: number[];
  cause: string | null;
  title: string | null;
  confidence: number | null;
  severity: Severity;
  state: "waiting" | "known" | "unknown";
}

/** A flame graph as columns, parents first; node 0 is everything. */
export interface Flame extends Span {
  samples: number;
  weight_us: number;
  base_since: number | null;
  base_until: number | null;
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
  dropped: number;
}

export interface SubsecondHeader extends Span {
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
  cgroup: string | null;
  share: number;
  seconds: number;
  per_cpu: [number, number][];
}

export interface Processes {
  processes: ProcessUse[];
  containers: ProcessUse[];
  total_seconds: number;
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
  target: string;
  command: string;
  risk: string;
  reversible: boolean;
  [more: string]: unknown;
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
  since: number | null;
  until: number | null;
  live: boolean;
  lost: number;
  incidents: number;
}
