/** The report of a verified fix: each measure before and after, on one scale. */
import type { JSX } from "preact";
import type { VerifyMeasure, VerifyReport, VerifySeries } from "../types";
import { Section, TextList } from "./diagnosis";
import { stepPath, totalWidth } from "./steps";

const CHANGES: Record<VerifyMeasure["change"], string> = {
  improved: "improved",
  unchanged: "unchanged",
  worse: "worse",
  "not-enough-evidence": "not proven",
};
const HEIGHT = 100;
/** The highest value stays a little below the top edge. */
const HEADROOM = 1.06;
const READING = [
  "“Improved” and “worse” need a chance of error below 1 % and a difference that is large enough to matter.",
  "“Unchanged” means that a difference that matters would have been detected.",
  "“Not proven” is neither good nor bad: the time was too short; the reason says how much longer it takes.",
  "Neighbouring seconds are alike, so levels are compared in blocks; single events are compared as counts over time.",
];

export function VerifyPage({ report }: { report: VerifyReport }): JSX.Element {
  return (
    <>
      <header class="report-header">
        <span class={`badge badge-${report.verdict}`} data-testid="verdict">
          {report.verdict}
        </span>
        <h1>{report.sentence}</h1>
        <p class="muted">{report.subtitle}</p>
        {report.interrupted && <p>Interrupted: this is what was observed until then.</p>}
      </header>
      <main class="report">
        <Section title="Before and after">
          {report.measures.map((measure) => (
            <Measure key={measure.title} measure={measure} />
          ))}
        </Section>
        <Section title="Steps taken">
          <TextList items={report.done} empty="None recorded." />
        </Section>
        <Section title="How to read this">
          <TextList items={READING} empty="" />
        </Section>
        <Section title="Blind spots">
          <TextList items={report.blind_spots} empty="None known." />
        </Section>
      </main>
    </>
  );
}

function Measure({ measure }: { measure: VerifyMeasure }): JSX.Element {
  const { before, after } = measure;
  const most = Math.max(0, ...[...before.points, ...after.points].map(([value]) => value)) * HEADROOM;
  return (
    <article class="measure" data-testid="measure" data-change={measure.change}>
      <header>
        <h3>{measure.title}</h3>
        <span class={`badge badge-${measure.change}`}>{CHANGES[measure.change]}</span>
      </header>
      <div class="sides">
        <Side name="before" series={before} most={most} title={measure.title} />
        <Side name="after" series={after} most={most} title={measure.title} />
      </div>
      <p>{measure.why}.</p>
      <p class="muted">
        Expected {measure.expected}: {measure.as_expected ? "met" : "not met"}.
      </p>
    </article>
  );
}

function Side(props: { name: string; series: VerifySeries; most: number; title: string }): JSX.Element {
  const { name, series, most, title } = props;
  const points = series.points.map(([value, seconds]) => [Math.max(0, value), seconds] as const);
  return (
    <div class={`side side-${name}`}>
      <small>{name}</small>
      <b>{series.value}</b>
      {points.length > 0 && (
        <svg
          viewBox={`0 0 ${totalWidth(points)} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${title} ${name}, ${series.coverage}`}
        >
          <path d={stepPath(points, most, HEIGHT)} />
        </svg>
      )}
      <div class="scale">
        <span>{series.coverage}</span>
        {series.worst && <span>worst {series.worst}</span>}
      </div>
    </div>
  );
}
