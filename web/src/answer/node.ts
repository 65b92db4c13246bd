/** The state of the node over a recording, from its incidents and the diagnosis of its end. Pure. */
import type { Diagnosis, Incident, RecordingInfo, Span } from "../types";

export type NodeState = Diagnosis["verdict"] | "diagnosing";

const MINUTE_MS = 60_000;
/** Of a recording that has ended without an incident, so much of its end is diagnosed. */
const CHECKED_MS = 10 * MINUTE_MS;

const VERDICTS: Record<string, NodeState> = { critical: "starved", warning: "degraded", info: "healthy" };
const RANK: NodeState[] = ["healthy", "unknown", "diagnosing", "degraded", "starved"];

export function stateOfIncident(incident: Incident): NodeState {
  if (incident.severity !== null) return VERDICTS[incident.severity] ?? "unknown";
  return incident.state === "waiting" ? "diagnosing" : "unknown";
}

/**
 * The worst state of any incident and of what is diagnosed on the same screen: two parts of it never contradict each
 * other. Null while nothing is known.
 */
export function nodeState(incidents: Incident[], diagnosed: Diagnosis | null): NodeState | null {
  const states = [...incidents.map(stateOfIncident), ...(diagnosed ? [diagnosed.verdict] : [])];
  return states.length === 0 ? null : states.reduce((worst, each) => (rank(each) > rank(worst) ? each : worst));
}

/** The worst of some diagnoses, of equals the first; null without any. */
export function worstDiagnosis(...of: (Diagnosis | null)[]): Diagnosis | null {
  const known = of.filter((each) => each !== null);
  if (known.length === 0) return null;
  return known.reduce((worst, each) => (rank(each.verdict) > rank(worst.verdict) ? each : worst));
}

/** The worst first, of equals the newest. */
export function ranked(incidents: Incident[]): Incident[] {
  return [...incidents].sort((a, b) => rank(stateOfIncident(b)) - rank(stateOfIncident(a)) || b.since - a.since);
}

function rank(of: NodeState): number {
  return RANK.indexOf(of);
}

/**
 * The time that is diagnosed for the first view: the last minute of a live recording, the end of one without incidents.
 * Null where the incidents have the answer. It moves once a minute.
 */
export function recentSpan(recording: Pick<RecordingInfo, "live" | "since" | "until">, marked: number): Span | null {
  const { live, since } = recording;
  if (!live && marked > 0) return null;
  const until = live ? Math.floor(recording.until / MINUTE_MS) * MINUTE_MS : recording.until;
  const span = { since: Math.max(since, until - (live ? MINUTE_MS : CHECKED_MS)), until };
  return span.until > span.since ? span : null;
}
