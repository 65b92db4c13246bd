/** A finding: confidence, culprit, and the chain from symptom to remedy. Used by the page and by reports. */
import type { ComponentChildren, JSX } from "preact";
import { confidence, time } from "../format";
import { state } from "../state";
import type { ChainLink, Evidence, Finding, Remedy, Span } from "../types";
import { chainOf, culpritFacts, evidencePlace, isQuoted, ROLES, shownValue } from "./chain";

/** Shows the evidence of a time and a core (null: all cores) on the timeline. */
export type GoTo = (span: Span, cpu: number | null, of?: Evidence) => void;

export function FindingCard(props: {
  finding: Finding;
  /** The sentence above the findings: a summary that repeats it is left out. */
  headline: string;
  /** One piece of evidence per link, without culprit and doubts. */
  compact?: boolean;
  /** Without it times and evidence are plain text. */
  goTo?: GoTo;
  /** The page of the cause, or the way to it. */
  about?: ComponentChildren;
}): JSX.Element {
  const { finding, headline, compact = false, goTo, about } = props;
  const doubts = finding.why_not_sure.join("; ");
  return (
    <article class={`finding finding-${finding.severity}`} data-testid="finding" data-cause={finding.cause}>
      <header>
        <span class={`badge badge-${finding.severity}`}>{finding.severity}</span>
        <h3>{finding.title}</h3>
        {!compact && <code>{finding.cause}</code>}
      </header>
      <p class="confidence" title="share of findings with this confidence that are right">
        <meter min={0} max={1} value={finding.confidence} aria-label="confidence" />
        <span data-testid="confidence" data-value={finding.confidence}>
          {confidence(finding.confidence)}
        </span>
        {!compact && doubts && <span class="muted">; limited by: {doubts}</span>}
      </p>
      {finding.summary !== headline && <p>{finding.summary}</p>}
      {finding.forecast && (
        <p class="forecast" data-testid="forecast">
          forecast: {finding.forecast.text}
        </p>
      )}
      {!compact && <CulpritFacts finding={finding} />}
      <ol class="chain" aria-label="from symptom to remedy">
        <Links links={chainOf(finding)} compact={compact} goTo={goTo} />
        {finding.remedies.map((remedy, index) => (
          <RemedyStep key={`${remedy.id} ${remedy.target}`} remedy={remedy} first={index === 0} compact={compact} />
        ))}
      </ol>
      {about}
    </article>
  );
}

/** What is known to have happened where no finding explains it. */
export function Symptoms({ links }: { links: ChainLink[] }): JSX.Element {
  return (
    <ol class="chain" aria-label="symptoms">
      <Links links={links} compact={false} />
    </ol>
  );
}

function CulpritFacts({ finding }: { finding: Finding }): JSX.Element | null {
  const facts = culpritFacts(finding.culprit);
  if (facts.length === 0) return null;
  return (
    <dl class="culprit-facts" aria-label="culprit">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Links(props: { links: ChainLink[]; compact: boolean; goTo?: GoTo }): JSX.Element {
  return (
    <>
      {props.links.map((link, index) => (
        <Step
          key={`${link.role} ${index}`}
          link={link}
          first={props.links[index - 1]?.role !== link.role}
          compact={props.compact}
          goTo={props.goTo}
        />
      ))}
    </>
  );
}

/** The role is written at the first link that has it. */
function Step(props: { link: ChainLink; first: boolean; compact: boolean; goTo?: GoTo }): JSX.Element {
  const { link, first, compact, goTo } = props;
  const evidence = compact ? link.evidence.slice(0, 1) : link.evidence;
  const clock = time(link.at_ms, state.value.utc);
  return (
    <li class={`chain-${link.role}`}>
      {goTo ? (
        <button type="button" class="link" onClick={() => goTo({ since: link.at_ms, until: link.at_ms + 1000 }, null)}>
          {clock}
        </button>
      ) : (
        <time>{clock}</time>
      )}
      <span class={first ? "role" : "role repeated"}>{ROLES[link.role]}</span>
      <div>
        <p>{link.text}</p>
        {evidence.length > 0 && (
          <ul class="evidence">
            {evidence.map((each, index) => (
              <li key={index}>
                <EvidenceText of={each} compact={compact} quoted={isQuoted(link, each)} goTo={goTo} />
              </li>
            ))}
          </ul>
        )}
      </div>
    </li>
  );
}

/** A recorded value; where there is room, with the time and the core that it was taken from. */
function EvidenceText(props: { of: Evidence; compact: boolean; quoted: boolean; goTo?: GoTo }): JSX.Element {
  const { of, compact, quoted, goTo } = props;
  const content = (
    <>
      {of.table}.{of.column}
      {!quoted && `: ${shownValue(of)}`}
      {!compact && <span class="muted"> ({evidencePlace(of, state.value.utc)})</span>}
    </>
  );
  const origin = `${of.how} of ${of.column} in ${of.table}: ${of.where}`;
  if (!goTo) return <span title={origin}>{content}</span>;
  return (
    <button
      type="button"
      class="link"
      data-testid="evidence"
      title={origin}
      onClick={() => goTo({ since: of.since_ms, until: of.until_ms }, of.cpu, of)}
    >
      {content}
    </button>
  );
}

function RemedyStep(props: { remedy: Remedy; first: boolean; compact: boolean }): JSX.Element {
  const { remedy, first, compact } = props;
  return (
    <li class="chain-remedy">
      <time />
      <span class={first ? "role" : "role repeated"}>remedy</span>
      <div>
        <p>{remedy.text || remedy.id}</p>
        {remedy.node && <p class="muted">on {remedy.node}:</p>}
        {remedy.command && <code class="command">{remedy.command}</code>}
        {!compact && <p class="muted">{remedy.cost}</p>}
      </div>
    </li>
  );
}
