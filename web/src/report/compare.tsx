/** The report of a comparison: the sentence that matters, and every difference with the values of both sides. */
import type { JSX } from "preact";
import { DataTable } from "../a11y";
import { count } from "../format";
import type { CompareReport, CompareRow } from "../types";
import { Section, TextList } from "./diagnosis";

const READING = [
  "The order is how likely a difference matters: units first, then kernel, drivers and settings, packages last.",
  "Ids, addresses, times, host names and the order of things do not count as differences.",
  "What is a consequence of another difference (modules of another kernel) comes after it.",
];

export function ComparePage({ report }: { report: CompareReport }): JSX.Element {
  const badge = report.verdict === "different" ? "degraded" : "healthy";
  return (
    <>
      <header class="report-header">
        <span class={`badge badge-${badge}`} data-testid="verdict">
          {report.verdict}
        </span>
        <h1>{report.sentence}</h1>
        <p class="muted">{report.subtitle}</p>
      </header>
      <main class="report">
        <Section title="Differences">
          {report.rows.length === 0 ? (
            <p class="muted">None.</p>
          ) : (
            <DataTable
              caption={`Differences between ${report.a} and ${report.b}`}
              keyOf={(row: CompareRow) => `${row.title} ${row.name}`}
              rows={report.rows}
              columns={[
                { title: "kind", cell: (row) => <span class={`badge badge-${row.level}`}>{row.title}</span> },
                { title: "name", cell: (row) => row.name },
                { title: report.a, cell: (row) => row.a },
                { title: report.b, cell: (row) => row.b },
                { title: "weight", numeric: true, cell: (row) => row.weight.toFixed(2) },
              ]}
            />
          )}
          {report.left_out > 0 && <p class="muted">and {count(report.left_out)} more</p>}
        </Section>
        <Section title="Not compared">
          <TextList items={report.not_compared} empty="Everything was compared." />
        </Section>
        <Section title="How to read this">
          <TextList items={READING} empty="" />
        </Section>
      </main>
    </>
  );
}
