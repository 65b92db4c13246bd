/** Incidents of the fleet as a stream, the newest first: of all nodes, of the selected group, or of one node. */
import type { JSX } from "preact";
import { announce, VisuallyHidden } from "../a11y";
import { count, moment, percent, plural } from "../format";
import { useShortcuts } from "../keyboard";
import { Placeholder, useResource } from "../resource";
import type { FleetIncident, FleetIncidents } from "../types";
import { HOUR_MS, REACHES, type Reach } from "./address";
import { api, incidentAddress } from "./api";
import { hour } from "./lake";
import { change, state } from "./state";

const LIMIT = 200;
const REST_MS = 120;
const TITLES: Record<Reach, string> = { hour: "this hour", day: "24 hours", all: "all" };
/** What the list shows, for the keys. */
const listed: { value: FleetIncidents | null } = { value: null };

export function Incidents(): JSX.Element {
  useShortcuts(() => [
    { keys: ["t"], group: "Nodes", title: "incidents of the hour, the day, or all", run: nextReach },
    { keys: ["i"], group: "Nodes", title: "to the list of incidents", run: focusFirst },
    { keys: ["c"], group: "Nodes", title: "incidents of the next cause, then of all", run: nextCause },
    { keys: ["r"], group: "Nodes", title: "open the newest recording of the list", run: openRecording },
  ]);
  const { reach, pick, node, cause } = state.value;
  const at = hour.value;
  const until = at === null ? null : at + HOUR_MS;
  const since = until === null || reach === "all" ? null : until - (reach === "hour" ? 1 : 24) * HOUR_MS;
  const scope = until === null ? null : { since, until, pick, node, cause, limit: LIMIT };
  const read = useResource(scope && JSON.stringify(scope), (signal) => api.incidents(scope!, signal), {
    delayMs: REST_MS,
  });
  const found = read.value;
  listed.value = found;
  const whose = node ? node : pick ? `${pick.key} ${pick.value || "not set"}` : "all nodes";
  return (
    <section class="side-part" aria-labelledby="incidents-title" aria-busy={read.loading} data-testid="incidents">
      <div class="side-line">
        <h2 id="incidents-title">Incidents</h2>
        <span class="muted">{whose}</span>
        <div class="measures reach" role="group" aria-label="how far back">
          {REACHES.map((each) => (
            <button type="button" key={each} aria-pressed={each === reach} onClick={() => change({ reach: each })}>
              {TITLES[each]}
            </button>
          ))}
        </div>
      </div>
      {found && found.causes.length > 0 && <Causes of={found} />}
      <Placeholder of={read} what="incidents" empty={found !== null && found.total === 0 && emptyReason(reach)} />
      {found && found.incidents.length > 0 && (
        <ol class="stream" data-testid="stream">
          {found.incidents.map((each) => (
            <Item key={`${each.node} ${each.id}`} of={each} />
          ))}
        </ol>
      )}
      {found && found.total > found.incidents.length && (
        <p class="muted">
          The newest {count(found.incidents.length)} of {count(found.total)}: select a group, a node or a cause.
        </p>
      )}
    </section>
  );
}

function emptyReason(reach: Reach): string {
  if (reach === "all") return "No incident until the end of this hour.";
  return reach === "day" ? "No incident in the 24 hours until the end of this hour." : "No incident in this hour.";
}

function nextReach(): void {
  const next = REACHES[(REACHES.indexOf(state.peek().reach) + 1) % REACHES.length];
  change({ reach: next });
  announce(`incidents: ${TITLES[next]}`);
}

function nextCause(): void {
  const causes = ["", ...(listed.value?.causes ?? []).map((each) => each.cause)];
  const next = causes[(causes.indexOf(state.peek().cause) + 1) % causes.length];
  change({ cause: next });
  announce(next === "" ? "incidents of every cause" : `incidents of ${causeTitle(next)}`);
}

function openRecording(): void {
  const found = listed.value?.incidents.find((each) => each.bundle);
  if (found) window.location.assign(incidentAddress(found.node, found.id));
  else announce("none of these incidents has a recording");
}

function focusFirst(): void {
  document.querySelector<HTMLElement>(".stream a, .stream button")?.focus();
}

function Causes({ of }: { of: FleetIncidents }): JSX.Element {
  const { cause } = state.value;
  return (
    <div class="kinds" role="group" aria-label="causes">
      {of.causes.map((each) => (
        <button
          type="button"
          key={each.cause}
          aria-pressed={each.cause === cause}
          title={`${plural(each.incidents, "incident")} on ${plural(each.nodes, "node")}`}
          onClick={() => change({ cause: each.cause === cause ? "" : each.cause })}
        >
          {causeTitle(each.cause)} <small>{count(each.incidents)}</small>
        </button>
      ))}
    </div>
  );
}

export function causeTitle(cause: string | null): string {
  return cause ? cause.replaceAll("-", " ") : "unexplained";
}

function Item({ of }: { of: FleetIncident }): JSX.Element {
  const { utc } = state.value;
  const who = of.leaker || of.culprit || of.process;
  const facts = [
    of.core === null ? "" : `core ${of.core}`,
    of.function ?? "",
    who ?? "",
    of.confidence === null ? "" : percent(of.confidence),
  ].filter((each) => each !== "");
  return (
    <li class={`incident ${of.severity ?? ""}`}>
      <p class="incident-line">
        <i aria-hidden="true">▲</i>
        <VisuallyHidden>{of.severity ?? "unknown severity"}: </VisuallyHidden>
        <strong>{causeTitle(of.cause)}</strong>
        <button type="button" class="link" onClick={() => change({ node: of.node })}>
          {of.node}
        </button>
        <time dateTime={new Date(of.at).toISOString()} class="muted">
          {moment(of.at, utc)}
        </time>
      </p>
      <p class="incident-line">
        <span class="muted">{facts.join(" · ")}</span>
        {of.bundle && (
          <a href={incidentAddress(of.node, of.id)} aria-label={`recording of ${of.node} at ${moment(of.at, utc)}`}>
            recording
          </a>
        )}
      </p>
      {of.summary && <p class="incident-summary">{of.summary}</p>}
    </li>
  );
}
