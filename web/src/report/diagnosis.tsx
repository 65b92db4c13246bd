/** The report of a diagnosis: verdict, findings, cores over time, stacks, events, and what was ruled out. */
import type { ComponentChildren, JSX } from "preact";
import { failureText } from "../diagnosis/chain";
import { CauseText } from "../diagnosis/causepage";
import { FindingCard, Symptoms } from "../diagnosis/finding";
import { Times } from "../diagnosis/times";
import { count, fixOffset, moment } from "../format";
import type { DiagnosisReport, Finding, ReportEvent } from "../types";
import { CoresChart, unpackCores } from "./cores";
import { ReportFlame } from "./flame";

export function DiagnosisPage({ report }: { report: DiagnosisReport }): JSX.Element {
  fixOffset(report.offset_ms);
  const { diagnosis } = report;
  const serious = diagnosis.findings.filter((each) => each.severity !== "info");
  const others = diagnosis.findings.filter((each) => each.severity === "info");
  return (
    <>
      <header class="report-header">
        <span class={`badge badge-${diagnosis.verdict}`} data-testid="verdict">
          {diagnosis.verdict}
        </span>
        <h1>{diagnosis.sentence}</h1>
        <p class="muted">
          {diagnosis.node} · {report.window}
        </p>
      </header>
      <main class="report">
        <Findings findings={serious} report={report} />
        {serious.length === 0 && diagnosis.symptoms.length > 0 && (
          <Section title="Symptoms">
            <Symptoms links={diagnosis.symptoms} />
          </Section>
        )}
        {diagnosis.accounting && (
          <Section title="Where the time went">
            <Times of={diagnosis.accounting} />
          </Section>
        )}
        <Section title="Cores">
          {report.cores === null ? (
            <p class="muted">No cores were recorded in this time.</p>
          ) : (
            <CoresChart
              grid={unpackCores(report.cores)}
              kernel={report.kernel}
              focus={diagnosis.focus}
              baseline={diagnosis.baseline}
              events={report.events}
              culprits={serious.flatMap(({ culprit }) => (culprit.cpu === null ? [] : [culprit.cpu]))}
            />
          )}
        </Section>
        <Section title={report.flame?.differential ? "Stacks compared with the baseline" : "Stacks"}>
          {report.flame === null ? (
            <p class="muted">There is no flame graph: {report.no_flame}.</p>
          ) : (
            <>
              <p class="muted">{report.flame_core === null ? "All cores." : `Core ${report.flame_core}.`}</p>
              <ReportFlame flame={report.flame} />
            </>
          )}
        </Section>
        <Findings findings={others} report={report} />
        {diagnosis.failures.length > 0 && (
          <Section title="Failures that it explains">
            <TextList items={diagnosis.failures.map((each) => failureText(each, false))} empty="" />
          </Section>
        )}
        <Section title="Events">
          <Events events={report.events} leftOut={report.events_left_out} />
        </Section>
        <Section title="Ruled out">
          <dl class="ruled-out">
            {diagnosis.ruled_out.map((each) => (
              <div key={each.cause}>
                <dt>{each.cause}</dt>
                <dd>{each.why}</dd>
              </div>
            ))}
          </dl>
        </Section>
        <Section title="Blind spots">
          <TextList items={diagnosis.blind_spots} empty="None known." />
        </Section>
      </main>
    </>
  );
}

export function Section({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <section>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

export function TextList({ items, empty }: { items: string[]; empty: string }): JSX.Element {
  if (items.length === 0) return <p class="muted">{empty}</p>;
  return (
    <ul>
      {items.map((each, index) => (
        <li key={index}>{each}</li>
      ))}
    </ul>
  );
}

function Findings({ findings, report }: { findings: Finding[]; report: DiagnosisReport }): JSX.Element {
  return (
    <>
      {findings.map((finding) => (
        <FindingCard
          key={finding.cause}
          finding={finding}
          headline={report.diagnosis.sentence}
          about={<About cause={finding.cause} text={report.cause_pages[finding.cause]} />}
        />
      ))}
    </>
  );
}

/** The page of a cause, folded. */
function About({ cause, text }: { cause: string; text: string | undefined }): JSX.Element | null {
  if (text === undefined) return null;
  return (
    <details data-testid="about-cause">
      <summary>what {cause} is, and how to fix it</summary>
      <CauseText text={text} embedded />
    </details>
  );
}

function Events({ events, leftOut }: { events: ReportEvent[]; leftOut: number }): JSX.Element {
  if (events.length === 0) return <p class="muted">No incident was marked and no warning was logged in this time.</p>;
  return (
    <>
      <div class="table-scroll">
        <table class="report-events">
          <thead>
            <tr>
              <th scope="col">time</th>
              <th scope="col">kind</th>
              <th scope="col">text</th>
            </tr>
          </thead>
          <tbody>
            {events.map((event, index) => (
              <tr key={index} class={`event-${event.severity}`}>
                <td>{moment(event.at_ms, false, true)}</td>
                <td>{event.kind}</td>
                <td>{event.text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {leftOut > 0 && <p class="muted">and {count(leftOut)} more</p>}
    </>
  );
}
