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

/** The worst state of any incident; of a node without one, that of its end. Null while that is not known. */
export function nodeState(incidents: Incident[], recent: Diagnosis | null): NodeState | null {
  if (incidents.length === 0) return recent?.verdict ?? null;
  return incidents.map(stateOfIncident).reduce((worst, each) => (rank(each) > rank(worst) ? each : worst));
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
