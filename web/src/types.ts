/** The types of the server's answers under the page's names. Times are milliseconds of wall time since 1970. */
import type { CoresHeader, SlicesHeader, SubsecondHeader } from "./api-schema";

export type {
  Accounting,
  AttributesHeader,
  CellShape as CellInfo,
  CellsHeader,
  ChainLink,
  CompareReport,
  CompareRow,
  Culprit,
  Diagnosis,
  DiagnosisReport,
  EventShape as NodeEvent,
  EventsShape as Events,
  Evidence,
  FailedJobs,
  Finding,
  FlameReport,
  FlameShape as Flame,
  FleetClusters,
  FleetHistogramShape as FleetHistogram,
  FleetIncident,
  FleetIncidentsShape as FleetIncidents,
  FleetReportShape as FleetReport,
  FleetShape as FleetInfo,
  IncidentShape as Incident,
  InterruptLine,
  InterruptsShape as Interrupts,
  JobFailure,
  LaneShape as Lane,
  LanesShape as Lanes,
  Line as LaneSeries,
  LiveShape as LiveUpdate,
  Mark,
  MeasureShape as FleetMeasure,
  Loss,
  MissingSource,
  NodeShape as FleetNode,
  PackedCores,
  ProcessesShape as Processes,
  ProcessShape as ProcessUse,
  ProgressShape as ProgressAnswer,
  Reading as Progress,
  RecordingShape as RecordingInfo,
  Remedy,
  ReportEvent,
  SeparatorShape as Separator,
  TimeRow,
  TimeTable,
  VerifyMeasure,
  VerifyReport,
  VerifySeries,
} from "./api-schema";
export type { CoresHeader, SlicesHeader, SubsecondHeader } from "./api-schema";

export interface Span {
  since: number;
  until: number;
}

/** Cores x cells, core by core: a value (`full` is full strength, or unrecorded), and which of `states` has it. */
export interface CoreGrid extends CoresHeader {
  values: Uint16Array;
  dominant: Uint8Array;
}

/** Columns x rows of sample counts, column by column; row 0 is the start of the column. */
export interface Subsecond extends SubsecondHeader {
  counts: Uint32Array;
  /** How many of them were in the kernel. */
  kernel: Uint32Array;
}

/** Who had each core when, core by core in the order of time. Times are microseconds after `since`. */
export interface Slices extends SlicesHeader {
  start: Uint32Array;
  length: Uint32Array;
  /** Indexes into `pids`, `tids` and `comms`, and into `frames`; -1 where no thread ran. */
  thread: Int32Array;
  frame: Int32Array;
  caught: Uint16Array;
  /** An index into `cpus`. */
  line: Uint16Array;
  /** An index into `states`. */
  state: Uint8Array;
}
