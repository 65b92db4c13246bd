/** A report: one self-contained file with its data embedded, drawn by the page's components. */
import { render, type JSX } from "preact";
import "../styles/base.css";
import "../styles/notices.css";
import "../styles/parts.css";
import "../styles/timeline.css";
import "../styles/lines.css";
import "../styles/panels.css";
import "../styles/diagnosis.css";
import "../styles/report.css";
import "../styles/print.css";
import { LiveRegion } from "../a11y";
import { startTheme } from "../theme";
import type { CompareReport, DiagnosisReport, FlameReport, VerifyReport } from "../types";
import { ComparePage } from "./compare";
import { DiagnosisPage } from "./diagnosis";
import { FlamePage } from "./flame";
import { VerifyPage } from "./verify";

type Report = FlameReport | DiagnosisReport | VerifyReport | CompareReport;

function pageOf(report: Report): JSX.Element {
  switch (report.kind) {
    case "flame":
      return <FlamePage report={report} />;
    case "diagnosis":
      return <DiagnosisPage report={report} />;
    case "verify":
      return <VerifyPage report={report} />;
    case "compare":
      return <ComparePage report={report} />;
  }
}

const data = document.getElementById("data")?.textContent;
const root = document.getElementById("report");
if (!data || !root) throw new Error("this report has no data: it was not written whole");
startTheme();
render(
  <>
    {pageOf(JSON.parse(data) as Report)}
    <LiveRegion />
  </>,
  root,
);
