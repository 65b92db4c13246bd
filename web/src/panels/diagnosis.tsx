/** What starved the node: the chain from what was felt to what has to change, each piece a link to its evidence. */
import type { JSX } from "preact";
import { isFiltered } from "../address";
import { api } from "../api";
import { duration, number, range, time } from "../format";
import { incidents, incidentsKnown } from "../live";
import { Standby, useResource } from "../resource";
import { change, extent, filters, state, type Analysed } from "../state";
import { endOf } from "../timeline/moves";
import type { ChainLink, Diagnosis, Evidence, Finding, Incident, Span } from "../wire";
import { chainOf, placeInWords, placeOf, shownValue, toldBy } from "./chain";
import type { Panel, PanelProps } from "./panel";
import { unrecordedWords } from "./unasked";

const ROLES: Record<string, string> = {
  symptom: "symptom",
  mechanism: "mechanism",
  culprit: "culprit",
  root_cause: "root cause",
  remedy: "remedy",
};
/** A longer look is asked for, not begun by looking at the whole recording. */
const LONGEST_MS = 3_600_000;
/** Beside another panel nobody asked for it: a view that is only passed through is not diagnosed by the hour. */
const LONGEST_UNASKED_MS = 600_000;
const SHOWN_EVIDENCE = 3;

export function useDiagnosis(of: Analysed, longest = LONGEST_MS): ReturnType<typeof useResource<Diagnosis>> {
  // Nor is a time asked for that is not recorded; and which of them are incidents has to be known first.
  const unasked = of.until - of.since > longest || unrecordedWords(of) !== null || !incidentsKnown.value;
  const incident = incidentSelected(of);
  return useResource(
    unasked ? null : `${of.since} ${of.until} ${incident?.id ?? ""}`,
    (signal) => (incident ? api.diagnosisOf(incident.id, signal) : api.diagnosis(of, signal)),
    { delayMs: incident ? 0 : 150 },
  );
}

/** The incident that is selected as a whole: what its mark says, the panel says, too. */
function incidentSelected(of: Analysed): Incident | null {
  if (!of.selected) return null;
  return incidents.value.find((each) => each.since === of.since && endOf(each) === of.until) ?? null;
}

function DiagnosisBody({ of }: PanelProps): JSX.Element {
  const read = useDiagnosis(of);
  const found = read.value;
  if (of.until - of.since > LONGEST_MS) return <TooLong />;
  return (
    <div class="diagnosis" data-testid="diagnosis" aria-busy={read.loading}>
      <Standby of={read} what="the evidence" empty={unrecordedWords(of) ?? false} />
      {found && (
        <>
          <Verdict of={found} />
          {found.findings.map((finding) => (
            <FindingCard key={finding.cause} finding={finding} said={found.sentence} open />
          ))}
          <RuledOut of={found} />
        </>
      )}
    </div>
  );
}

/** Beside the other panels: the first finding, short. */
export function DiagnosisAside({ of }: PanelProps): JSX.Element | null {
  const longest = of.selected ? LONGEST_MS : LONGEST_UNASKED_MS;
  const read = useDiagnosis(of, longest);
  const found = read.value;
  return (
    <aside class="aside" aria-label="diagnosis of what is looked at" data-testid="aside" aria-busy={read.loading}>
      {of.until - of.since > longest ? (
        <TooLong />
      ) : (
        <>
          <Standby of={read} what="the evidence" empty={unrecordedWords(of) ?? false} />
          {found && <Verdict of={found} />}
          {found?.findings[0] && <FindingCard finding={found.findings[0]} said={found.sentence} open={false} />}
          {found && found.findings.length > 1 && (
            <button type="button" class="link" onClick={() => change({ tab: "diagnosis" })}>
              {found.findings.length - 1} more
            </button>
          )}
        </>
      )}
    </aside>
  );
}

function TooLong(): JSX.Element {
  return (
    <p class="muted">
      Select an incident, or up to {duration(LONGEST_MS)}, and its cause is looked for: drag in the heatmap, click an
      incident, or press n.
    </p>
  );
}

function Verdict({ of }: { of: Diagnosis }): JSX.Element {
  return (
    <>
      <p class={`verdict verdict-${of.verdict}`} data-testid="verdict">
        <strong>{of.verdict}</strong> {of.sentence}
      </p>
      {isFiltered(filters.value) && <p class="muted">The diagnosis looks at the whole node, whatever is filtered.</p>}
    </>
  );
}

/** `said` stands above it already: no sentence is told twice. */
function FindingCard({ finding, said, open }: { finding: Finding; said: string; open: boolean }): JSX.Element {
  return (
    <article class={`finding finding-${finding.severity}`} data-testid="finding" data-cause={finding.cause}>
      <header>
        <h3>{finding.title}</h3>
        <span class="badge">{finding.severity}</span>
        <span title="how often findings told like this are right">{number(finding.confidence, 2)} sure</span>
      </header>
      {finding.summary !== said && <p>{finding.summary}</p>}
      <ol class="chain" aria-label="from symptom to remedy">
        {chainOf(finding).map((link, index) => (
          <Link key={`${link.role} ${index}`} link={link} open={open} />
        ))}
        {finding.remedies.map((remedy) => (
          <li key={remedy.id} class="chain-remedy">
            <span class="role">remedy</span>
            <div>
              <span>{remedy.text || remedy.id}</span>
              {remedy.command && <code class="command">{remedy.command}</code>}
              {open && (
                <span class="muted">
                  risk {remedy.risk}
                  {remedy.reversible ? ", can be undone" : ", can't be undone"}
                </span>
              )}
            </div>
          </li>
        ))}
      </ol>
      {open && finding.why_not_sure.length > 0 && (
        <p class="muted">Not surer because {finding.why_not_sure.join("; ")}.</p>
      )}
    </article>
  );
}

function Link({ link, open }: { link: ChainLink; open: boolean }): JSX.Element {
  const shown = open ? link.evidence : link.evidence.slice(0, 1);
  return (
    <li class={`chain-${link.role}`}>
      <span class="role">{ROLES[link.role] ?? link.role}</span>
      <div>
        <button type="button" class="link" onClick={() => goTo({ since: link.at_ms, until: link.at_ms + 1000 }, null)}>
          {time(link.at_ms, state.value.utc)}
        </button>{" "}
        <span>{link.text}</span>
        {shown.length > 0 && (
          <ul class="evidence">
            {shown.slice(0, open ? undefined : SHOWN_EVIDENCE).map((each, index) => (
              <li key={index}>
                <EvidenceLink of={each} open={open} repeats={toldBy(link, each)} />
              </li>
            ))}
          </ul>
        )}
      </div>
    </li>
  );
}

/** A value with, where there is room, the time and the core that it was taken from: where the link leads. */
function EvidenceLink({ of, open, repeats }: { of: Evidence; open: boolean; repeats: boolean }): JSX.Element {
  return (
    <button
      type="button"
      class="link"
      data-testid="evidence"
      title={`${of.how} of ${of.column} in ${of.table}: ${of.where}`}
      onClick={() => goTo({ since: of.since_ms, until: of.until_ms }, of.cpu)}
    >
      {of.table}.{of.column}
      {!repeats && `: ${shownValue(of)}`}
      {open && <span class="muted"> ({placeInWords(of, state.value.utc)})</span>}
    </button>
  );
}

/** Move the timeline to a piece of evidence: its time is selected, on its core, with some of the time around it. */
function goTo(span: Span, cpu: number | null): void {
  const { selected, shown } = placeOf(span, extent.peek());
  const moved = shown.until > shown.since ? { ...shown, last: null } : {};
  // One step, so that one key takes it back.
  change({ ...moved, s0: selected.since, s1: selected.until, cpus: cpu === null ? null : [cpu], root: [] });
}

function RuledOut({ of }: { of: Diagnosis }): JSX.Element | null {
  if (of.ruled_out.length === 0 && of.blind_spots.length === 0) return null;
  const { utc } = state.value;
  return (
    <>
      <details>
        <summary>
          {of.ruled_out.length} {of.findings.length > 0 && "other "}causes were ruled out
        </summary>
        <dl class="ruled-out">
          {of.ruled_out.map((each) => (
            <div key={each.cause}>
              <dt>{each.cause}</dt>
              <dd>{each.why}</dd>
            </div>
          ))}
        </dl>
      </details>
      {of.blind_spots.length > 0 && (
        <details>
          <summary>{of.blind_spots.length} blind spots</summary>
          <ul>
            {of.blind_spots.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </details>
      )}
      <p class="muted">
        Looked at {range(of.focus.since_ms, of.focus.until_ms, utc)}
        {of.baseline && `, compared with ${range(of.baseline.since_ms, of.baseline.until_ms, utc)}`}.
      </p>
    </>
  );
}

export const diagnosisPanel: Panel = { tab: "diagnosis", title: "Diagnosis", key: "6", Body: DiagnosisBody };
