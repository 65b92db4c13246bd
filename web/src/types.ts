/** The types of the server's answers under the page's names. Times are milliseconds of wall time since 1970. */
import type { CoresHeader, SubsecondHeader } from "./api-schema";

export type {
  Accounting,
  CellShape as CellInfo,
  ChainLink,
  Culprit,
  Diagnosis,
  DiagnosisReport,
  EventShape as NodeEvent,
  EventsShape as Events,
  Evidence,
  Finding,
  FlameReport,
  FlameShape as Flame,
  IncidentShape as Incident,
  InterruptLine,
  InterruptsShape as Interrupts,
  JobFailure,
  LaneShape as Lane,
  LanesShape as Lanes,
  Line as LaneSeries,
  LiveShape as LiveUpdate,
  Mark,
  MissingSource,
  PackedCores,
  ProcessesShape as Processes,
  ProcessShape as ProcessUse,
  ProgressShape as ProgressAnswer,
  Reading as Progress,
  RecordingShape as RecordingInfo,
  Remedy,
  ReportEvent,
  TimeRow,
  TimeTable,
  VerifyMeasure,
  VerifyReport,
  VerifySeries,
} from "./api-schema";
export type { CoresHeader, SubsecondHeader } from "./api-schema";

export interface Span {
  since: number;
  until: number;
}

/** Cores x cells, core by core: how much (0..full, or unrecorded) and which state of `states` rules the cell. */
export interface CoreGrid extends CoresHeader {
  values: Uint8Array;
  dominant: Uint8Array;
}

/** Columns x rows of sample counts, column by column; row 0 is the start of the column. */
export interface Subsecond extends SubsecondHeader {
  counts: Uint32Array;
}
