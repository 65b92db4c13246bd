/** The chain of a finding in order, and the place of its evidence in time. Pure. */
import { duration, percent, quantity, range, time } from "../format";
import { AUTO_LANE } from "../address";
import type { ChainLink, Culprit, Evidence, Finding, JobFailure, Span } from "../types";

const ORDER = ["symptom", "mechanism", "culprit", "root_cause"];
/** The names of the roles. */
export const ROLES: Record<ChainLink["role"], string> = {
  symptom: "symptom",
  mechanism: "mechanism",
  culprit: "culprit",
  root_cause: "root cause",
};

const AROUND_MS = 30_000;
const LEAST_MS = 1000;

/** From symptom to root cause; the culprit is a link of its own even where the chain does not name it. */
export function chainOf(finding: Finding): ChainLink[] {
  const chain = [...finding.chain].sort((a, b) => ORDER.indexOf(a.role) - ORDER.indexOf(b.role));
  return chain.some((link) => link.role === "culprit") ? chain : withCulprit(chain, finding);
}

function withCulprit(chain: ChainLink[], { culprit }: Finding): ChainLink[] {
  const parts = [
    culprit.comm && `${culprit.comm}${culprit.pid ? ` (pid ${culprit.pid})` : ""}`,
    culprit.function && `in ${culprit.function}`,
    culprit.cpu !== null && `on core ${culprit.cpu}`,
  ].filter(Boolean);
  if (parts.length === 0 || chain.length === 0) return chain;
  const place = chain.findIndex((link) => link.role === "root_cause");
  const at = chain[Math.max(0, place - 1)];
  const link: ChainLink = { role: "culprit", at: at.at, at_ms: at.at_ms, text: parts.join(" "), evidence: [] };
  return place < 0 ? [...chain, link] : [...chain.slice(0, place), link, ...chain.slice(place)];
}

/** A failure that a finding explains: when, what, and how long after the finding began. */
export function failureText(of: JobFailure, utc: boolean): string {
  return `${time(of.at_ms, utc)} ${of.kind}: ${of.text} (${duration(of.after_s * 1000)} after ${of.cause} began)`;
}

/** The value of a piece of evidence with its unit; a share of one as a percentage. */
export function shownValue(of: Evidence): string {
  if (typeof of.value !== "number") return String(of.value ?? "");
  return of.how === "share" && of.value <= 1 ? percent(of.value) : quantity(of.value, of.unit);
}

/** Whether the text of a link contains the value of its evidence, which is not repeated then. */
export function isQuoted(link: Pick<ChainLink, "text">, of: Evidence): boolean {
  return typeof of.value === "string" && of.value.length > 0 && link.text.includes(of.value);
}

/** Where a piece of evidence was taken from: `02:45:11 – 02:46:11, core 69`; a second or less is one moment. */
export function evidencePlace({ since_ms, until_ms, cpu }: Evidence, utc: boolean): string {
  const when = until_ms - since_ms <= LEAST_MS ? time(since_ms, utc) : range(since_ms, until_ms, utc);
  return cpu === null ? when : `${when}, core ${cpu}`;
}

/** Columns that a lane of the timeline draws; of every other table the cores and the panels show the rows. */
const LANE_OF: Partial<Record<string, string>> = {
  "cgroups.kernel": "memcgs",
  "cgroups.visible": "memcgs",
  "cgroups.dying": "memcgs",
  "node.psi_cpu_some": "pressure",
  "node.psi_memory_some": "pressure",
  "node.psi_io_some": "pressure",
  "node.pgscan_kswapd": "reclaim",
  "node.pgscan_direct": "reclaim",
  "cpu.wait_ns": "wait",
  "throttling.throttled_ns": "throttling",
};

/** The lane that draws the column of a piece of evidence; null where none does. */
export function laneOf({ table, column }: Pick<Evidence, "table" | "column">): string | null {
  return LANE_OF[`${table}.${column}`] ?? null;
}

/** The lanes to open for a piece of evidence: its lane takes the place of the one that was opened by itself, which
 * keeps the timeline's height, and comes after those that were chosen. */
export function lanesWith(lane: string | null, open: string[]): string[] {
  if (lane === null || open.includes(lane)) return open;
  return open.includes(AUTO_LANE) ? [lane] : [...open, lane];
}

/** What to select for a piece of evidence, and the time around it that the timeline shows then. */
export function placeOf(span: Span, whole: Span | null): { selected: Span; shown: Span } {
  const until = Math.max(span.until, span.since + LEAST_MS);
  const around = Math.max(AROUND_MS, until - span.since);
  const shown = { since: span.since - around, until: until + around };
  if (whole) {
    shown.since = Math.max(whole.since, shown.since);
    shown.until = Math.min(whole.until, shown.until);
  }
  return { selected: { since: span.since, until }, shown };
}

/** What is known about the culprit, as pairs of a name and a value. */
export function culpritFacts(culprit: Culprit): [string, string][] {
  const { cpu, comm, pid } = culprit;
  const facts: [string, string | number | null][] = [
    ["core", cpu],
    ["process", comm !== null && pid !== null ? `${comm} (${pid})` : comm],
    ["function", culprit.function],
    ["command", culprit.cmdline],
    ["cgroup", culprit.cgroup],
    ["container", nameAndId(culprit.container_name, culprit.container)],
    ["pod", nameAndId(culprit.pod_name, culprit.pod)],
    ["owner", culprit.owner],
  ];
  return facts.flatMap(([name, value]): [string, string][] => (value === null ? [] : [[name, String(value)]]));
}

function nameAndId(name: string | null, id: string | null): string | null {
  return name && id && name !== id ? `${name} (${id})` : name || id;
}
