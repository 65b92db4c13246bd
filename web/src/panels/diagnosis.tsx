/** The diagnosis panel: verdict, findings with their chains, and what was ruled out. */
import type { JSX } from "preact";
import { isFiltered } from "../address";
import { CauseLink } from "../diagnosis/causepage";
import { current, MAX_MS } from "../diagnosis/current";
import { FindingCard } from "../diagnosis/finding";
import { failureText } from "../diagnosis/chain";
import { followEvidence, leaveEvidence } from "../diagnosis/follow";
import { Times } from "../diagnosis/times";
import { formatCores } from "../cpulist";
import { duration, range } from "../format";
import { Placeholder } from "../resource";
import { analysed, change, filters, state, type Analysed } from "../state";
import type { Accounting, Diagnosis } from "../types";
import type { Panel } from "./panel";
import { unrecordedReason } from "./empty-states";

function DiagnosisBody(): JSX.Element | null {
  const now = current.value;
  if (now === null) return null;
  const { of, read, tooLong } = now;
  const found = read.value;
  if (tooLong) return <TooLong />;
  return (
    <div class="diagnosis" data-testid="diagnosis" aria-busy={read.loading}>
      <Placeholder of={read} what="the evidence" empty={unrecordedReason(of) ?? false} />
      <PinnedTo />
      {found && (
        <>
          <OfView of={of} />
          <Verdict of={found} />
          {found.findings.map((finding) => (
            <FindingCard
              key={finding.cause}
              finding={finding}
              headline={found.sentence}
              goTo={followEvidence}
              about={<CauseLink cause={finding.cause} />}
            />
          ))}
          {found.accounting && <Where of={found.accounting} />}
          <RuledOut of={found} />
        </>
      )}
    </div>
  );
}

/** Next to the other panels: the first finding, short. */
export function DiagnosisAside(): JSX.Element | null {
  const now = current.value;
  if (now === null) return null;
  const { of, read, tooLong } = now;
  const found = read.value;
  return (
    <aside class="aside" aria-label="diagnosis of what is looked at" data-testid="aside" aria-busy={read.loading}>
      {tooLong ? (
        <TooLong />
      ) : (
        <>
          <PinnedTo />
          <Placeholder of={read} what="the evidence" empty={unrecordedReason(of) ?? false} />
          {found && <OfView of={of} />}
          {found && <Verdict of={found} />}
          {found?.findings[0] && (
            <FindingCard
              finding={found.findings[0]}
              headline={found.sentence}
              goTo={followEvidence}
              about={<CauseLink cause={found.findings[0].cause} />}
              compact
            />
          )}
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

export function TooLong(): JSX.Element {
  return (
    <p class="muted">
      Select an incident, or up to {duration(MAX_MS)}, to diagnose it: drag in the heatmap, click an incident, or press
      n.
    </p>
  );
}

function Verdict({ of }: { of: Diagnosis }): JSX.Element {
  const cores = analysed.value?.list ?? null;
  // Where it is about other cores than the selected ones, that looks like a mistake without a word.
  const elsewhere = of.findings.some(({ culprit }) => culprit.cpu !== null && cores?.includes(culprit.cpu) === false);
  return (
    <>
      <p class="verdict" data-testid="verdict">
        <span class={`badge badge-${of.verdict}`}>{of.verdict}</span> {of.sentence}
      </p>
      {isFiltered(filters.value) && <p class="muted">The diagnosis looks at the whole node; filters do not apply.</p>}
      {elsewhere && (
        <p class="muted" data-testid="whole-node">
          The diagnosis looks at the whole node, not only at {formatCores(cores)}.
        </p>
      )}
    </>
  );
}

function Where({ of }: { of: Accounting }): JSX.Element {
  return (
    <details open>
      <summary>Where the time went</summary>
      <Times of={of} />
    </details>
  );
}

/** Of a view the figures are others than those of an incident in it. */
function OfView({ of }: { of: Analysed }): JSX.Element | null {
  if (of.selected) return null;
  return (
    <p class="muted" data-testid="of-view">
      Of all that is in view, {range(of.since, of.until, state.value.utc)}:
    </p>
  );
}

/** While evidence is followed: what the diagnosis is of, the way back to it, and the diagnosis of the evidence. */
function PinnedTo(): JSX.Element | null {
  const { d0, d1, utc } = state.value;
  if (d0 === null || d1 === null) return null;
  return (
    <p class="pinned-diagnosis" role="note" data-testid="pinned-diagnosis">
      Of {range(d0, d1, utc)}, while you follow its evidence.{" "}
      <button type="button" class="link" onClick={leaveEvidence}>
        back to it
      </button>{" "}
      <button type="button" class="link" onClick={() => change({ d0: null, d1: null })}>
        diagnose the selection
      </button>
    </p>
  );
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
      {of.failures.length > 0 && (
        <details open>
          <summary>{of.failures.length} failures of jobs that it explains</summary>
          <ul>
            {of.failures.map((each) => (
              <li key={`${each.at} ${each.text}`}>{failureText(each, utc)}</li>
            ))}
          </ul>
        </details>
      )}
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
