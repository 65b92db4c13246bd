/** The first view's answer: the state of the node, and its incidents, each one click away. */
import type { ComponentChildren, JSX } from "preact";
import { useMemo } from "preact/hooks";
import { api } from "../api";
import { current } from "../diagnosis/current";
import { formatCores } from "../cpulist";
import { confidence, datedRange, duration, moment, percent, plural, range, stamp } from "../format";
import { incidents, incidentsKnown } from "../live";
import { useResource } from "../resource";
import { extent, recording, select, state, warm } from "../state";
import { incidentLabel, openIncident } from "../timeline/navigation";
import type { Diagnosis, Incident, RecordingInfo, Span } from "../types";
import { nodeState, ranked, recentSpan, stateOfIncident, worstDiagnosis } from "./node";

/** The panels go first. */
const AFTER_THE_PANELS_MS = 300;

export function Landing(): JSX.Element | null {
  const known = recording.value;
  const marked = useMemo(() => ranked(incidents.value), [incidents.value]);
  const span = known && warm.value && incidentsKnown.value ? recentSpan(known, marked.length) : null;
  const read = useResource(
    span && `${span.since} ${span.until}`,
    (signal) => api.diagnosis(span as Span, signal),
    { delayMs: AFTER_THE_PANELS_MS },
  );
  if (!known) return null;
  const recent = read.value;
  // Next to the panels is the diagnosis of what is in view.
  const worst = worstDiagnosis(recent, current.value?.read.value ?? null);
  const verdict = incidentsKnown.value ? nodeState(marked, worst) : null;
  const busy = !incidentsKnown.value || read.loading;
  return (
    <section class="answer landing" aria-label="state of the node" data-testid="landing" aria-busy={busy}>
      <div class="answer-main" role="group" aria-label="what is known" tabIndex={0}>
        <p class="headline" data-testid="landing-headline">
          {verdict && <span class={`badge badge-${verdict}`}>{verdict}</span>}{" "}
          <strong>{headline(marked, worst)}</strong>
        </p>
        {marked.length > 0 && <p class="clamped">{marked[0].summary ?? marked[0].text}</p>}
        {marked.length === 0 && read.error === null && <Checked of={known} diagnosed={worst} />}
        {read.error !== null && <p class="muted">The end of the recording could not be diagnosed: {read.error}</p>}
      </div>
      {(marked.length > 0 || known.live) && <IncidentList of={marked} now={known.live ? recent : null} />}
      {marked.length === 0 && !known.live && recent && <RuledOutList of={recent} />}
    </section>
  );
}

function headline(marked: Incident[], diagnosed: Diagnosis | null): ComponentChildren {
  const whole = extent.value;
  if (!whole) return "";
  const long = duration(whole.until - whole.since);
  if (!incidentsKnown.value) return `Reading the incidents of ${long} …`;
  if (marked.length > 0) return `${plural(marked.length, "incident")} in ${long}`;
  // Only marks are known yet, and that none was set is no verdict.
  if (diagnosed === null) return `No incident was marked in ${long}`;
  return diagnosed.verdict === "healthy" ? `No incident in ${long}` : diagnosed.sentence;
}

/** Without incidents: what was looked at, and since when. */
function Checked({ of, diagnosed }: { of: RecordingInfo; diagnosed: Diagnosis | null }): JSX.Element {
  const { utc } = state.value;
  const { since_ms, until_ms } = diagnosed?.window ?? { since_ms: 0, until_ms: 0 };
  return (
    <p class="clamped" data-testid="checked">
      Watched each second since {moment(of.since, utc)}: cores that the kernel holds, softirqs that wait, the kernel
      log, dying cgroups
      {of.gaps.length > 0 && `, with ${plural(of.gaps.length, "gap")}`}
      {diagnosed && `; ${plural(diagnosed.ruled_out.length, "cause")} ruled out in ${range(since_ms, until_ms, utc)}`}.
    </p>
  );
}

/** Each incident: when, what, where, how sure. The last minute of a live recording is above them. */
function IncidentList({ of, now }: { of: Incident[]; now: Diagnosis | null }): JSX.Element {
  return (
    <ol class="incident-list" aria-label="incidents, the worst first" data-testid="incident-list">
      {now && <LastMinute of={now} />}
      {of.map((each) => (
        <li key={each.id}>
          <button type="button" title={incidentLabel(each)} onClick={() => openIncident(each)}>
            <i class={`dot dot-${stateOfIncident(each)}`} aria-hidden="true" />
            <time>{stamp(each.since, state.value.utc, extent.value)}</time>
            <span class="what">{each.title ?? each.text}</span>
            <span class="where">{each.cpus.length > 0 && formatCores(each.cpus, recording.value?.cores)}</span>
            <Sure of={each} />
          </button>
        </li>
      ))}
    </ol>
  );
}

function LastMinute({ of }: { of: Diagnosis }): JSX.Element {
  const span = { since: of.window.since_ms, until: of.window.until_ms };
  const title = `select ${datedRange(span.since, span.until, state.value.utc)}`;
  return (
    <li data-testid="last-minute">
      <button type="button" title={title} onClick={() => select(span, null)}>
        <i class={`dot dot-${of.verdict}`} aria-hidden="true" />
        <time>last minute</time>
        <span class="what">{of.sentence}</span>
        <span class="where" />
        <span class="sure">{of.verdict}</span>
      </button>
    </li>
  );
}

function Sure({ of }: { of: Incident }): JSX.Element {
  if (of.confidence === null) {
    return <span class="sure">{of.state === "waiting" ? "diagnosing …" : "not explained"}</span>;
  }
  return (
    <span class="sure" title={confidence(of.confidence)}>
      <meter min={0} max={1} value={of.confidence} aria-label="confidence" /> {percent(of.confidence)}
    </span>
  );
}

function RuledOutList({ of }: { of: Diagnosis }): JSX.Element | null {
  if (of.ruled_out.length === 0) return null;
  return (
    <ul class="checked-list" tabIndex={0} aria-label="causes that were ruled out">
      {of.ruled_out.map((each) => (
        <li key={each.cause} title={each.why}>
          {each.cause}
        </li>
      ))}
    </ul>
  );
}
