/** What sets sick nodes apart: the report's attributes, each of which groups and selects the nodes that it is about. */
import type { JSX } from "preact";
import { announce } from "../a11y";
import { count, day, number, percent, plural } from "../format";
import { useShortcuts } from "../keyboard";
import type { FailedJobs, FleetClusters, FleetReport, Separator } from "../types";
import { openBlindSpots } from "./header";
import { causeTitle } from "./incidents";
import { report } from "./lake";
import { change, state } from "./state";
import { hourLabel } from "./slider";

const FIRST = 5;

function selectNodes(of: Separator): void {
  const [first] = of.conditions;
  change({ group: first.key, pick: { key: first.key, value: first.value }, node: "" });
}

/** The separators that the list shows at once. */
function listed(of: FleetReport | null): Separator[] {
  return (of?.separators ?? []).filter((each) => !each.explained).slice(0, FIRST);
}

function selectSeparator(place: number): void {
  const found = listed(report.peek()).at(place);
  if (!found) announce("the report has no such attribute");
  else {
    selectNodes(found);
    announce(`grouped by ${found.conditions[0].key}, nodes with ${conditionsText(found)} selected`);
  }
}

export function ReportPart(): JSX.Element {
  useShortcuts(() => [
    {
      keys: Array.from({ length: FIRST }, (_, i) => String(i + 1)),
      group: "Nodes",
      title: "group by the report's first, second, … attribute, and select its nodes",
      run: (event) => selectSeparator(Number(event.key) - 1),
    },
  ]);
  const of = report.value;
  return (
    <section class="side-part" aria-labelledby="report-title" data-testid="report" data-state={of?.state ?? "unread"}>
      <div class="side-line">
        <h2 id="report-title">What sets sick nodes apart</h2>
        {of?.state === "ready" && of.since !== null && of.until !== null && (
          <span class="muted">
            {day(of.since, state.value.utc)} – {day(of.until, state.value.utc)}
          </span>
        )}
      </div>
      {(of === null || of.state === "computing") && (
        <p class="muted">{of?.detail || "the report"}; this takes some seconds …</p>
      )}
      {of?.state === "failed" && <p class="trouble placeholder">No report: {of.detail}</p>}
      {of?.state === "ready" && <Ready of={of} />}
    </section>
  );
}

/** The report's answer in a sentence, which leads to it: on a phone all nodes are between. */
export function Answer(): JSX.Element | null {
  const of = report.value;
  const first = listed(of).at(0);
  if (of?.state !== "ready" || !first) return null;
  const what = of.common ? causeTitle(of.common.cause) : "incidents";
  const who = of.common?.leaker || of.common?.culprit;
  return (
    <p class="fleet-answer" data-testid="answer">
      <button type="button" class="link" onClick={() => document.getElementById("report-title")?.scrollIntoView()}>
        {what} {who && `by ${who} `}on {conditionsText(first)}
      </button>{" "}
      <span class="muted">
        {count(first.sick)} of {plural(first.nodes, "node")} sick
      </span>
    </p>
  );
}

function Ready({ of }: { of: FleetReport }): JSX.Element {
  const { utc } = state.value;
  const explained = of.separators.filter((each) => each.explained);
  return (
    <>
      <p>
        <strong>{count(of.sick)}</strong> of {plural(of.nodes, "node")} had incidents.
        {of.common && <CommonCause of={of.common} />}
      </p>
      {of.separators.length === 0 ? (
        <p class="muted">None of {plural(of.tried, "attribute")} and pairs sets them apart.</p>
      ) : (
        <Separators of={listed(of)} />
      )}
      {of.clusters.length > 0 && (
        <ul class="findings">
          {of.clusters.map((each) => (
            <Clusters key={each.key} of={each} />
          ))}
        </ul>
      )}
      {explained.length > 0 && (
        <details>
          <summary>{plural(explained.length, "more", "more")}, explained by the first</summary>
          <Separators of={explained} />
        </details>
      )}
      <ul class="findings">
        {of.uptime_days && (
          <li>
            First incidents come {number(of.uptime_days[0])} to {number(of.uptime_days[1])} days after boot.
          </li>
        )}
        {of.onset !== null && <li>It began about {hourLabel(of.onset, utc)}.</li>}
        {of.changes.map((each) => (
          <li key={`${each.key} ${each.value}`}>
            Before it, {each.key} changed {each.before && `from ${each.before} `}to {each.value} on{" "}
            {count(each.sick)} of {plural(each.of_sick, "sick node")}.
          </li>
        ))}
        {of.jobs && <Jobs of={of.jobs} />}
      </ul>
      {of.at_risk.length > 0 && (
        <details>
          <summary>{plural(of.at_risk_total, "node")} at risk</summary>
          <ul class="at-risk">
            {of.at_risk.map((each) => (
              <li key={each.node}>
                <button type="button" class="link" onClick={() => change({ node: each.node })}>
                  {each.node}
                </button>{" "}
                <span class="muted">about {hourLabel(each.at, utc)}</span>
              </li>
            ))}
          </ul>
        </details>
      )}
      {of.steps.length > 0 && (
        <details open>
          <summary>What to do next</summary>
          <ol class="steps">
            {of.steps.map((each) => (
              <li key={each.text}>
                {each.text}
                {each.nodes > 0 && <span class="muted"> ({plural(each.nodes, "node")})</span>}
                {each.command && (
                  <>
                    {" "}
                    <code>{each.command}</code>
                  </>
                )}
              </li>
            ))}
          </ol>
        </details>
      )}
      {of.blind_spots.length > 0 && (
        <button type="button" class="link warned" onClick={openBlindSpots} title="blind spots (b)">
          {plural(of.blind_spots.length, "blind spot")} of this report
        </button>
      )}
    </>
  );
}

function CommonCause({ of }: { of: NonNullable<FleetReport["common"]> }): JSX.Element {
  const who = of.leaker || of.culprit;
  return (
    <>
      {" "}
      {plural(of.nodes, "of them found", "of them found")} <strong>{causeTitle(of.cause)}</strong>
      {who && (
        <>
          {" "}
          by <strong>{who}</strong>
        </>
      )}
      .
    </>
  );
}

const CLUSTERS_NAMED = 4;

function Clusters({ of }: { of: FleetClusters }): JSX.Element {
  const more = of.sick.length - CLUSTERS_NAMED;
  return (
    <li>
      Sick nodes come in clusters by{" "}
      <button
        type="button"
        class="link"
        title={`group by ${of.key}`}
        onClick={() => change({ group: of.key, order: "worst" })}
      >
        {of.key}
      </button>
      {of.sick.length > 0 && (
        <>
          : {percent(of.coverage)} of them are in{" "}
          {of.sick.slice(0, CLUSTERS_NAMED).map((value, i) => (
            <span key={value}>
              {i > 0 && ", "}
              <button
                type="button"
                class="link"
                title={`group by ${of.key} and select ${value}`}
                onClick={() => change({ group: of.key, pick: { key: of.key, value }, node: "" })}
              >
                {value}
              </button>
            </span>
          ))}
          {more > 0 && ` and ${count(more)} more`} of {plural(of.values, "value")}
        </>
      )}
      .
    </li>
  );
}

function Jobs({ of }: { of: FailedJobs }): JSX.Element {
  return (
    <li>
      Of {plural(of.failed, "failed job")}, <strong>{count(of.explained)}</strong> had a member on a node with an
      incident within {of.within_s} s before ({percent(of.share)}, {percent(of.low)} to {percent(of.high)}); by chance
      {` ${number(of.expected)} `}would.
    </li>
  );
}

function conditionsText(of: Separator): string {
  return of.conditions.map((each) => `${each.key} ${each.value}`).join(" and ");
}

function Separators({ of }: { of: Separator[] }): JSX.Element {
  return (
    <ol class="separators">
      {of.map((each) => (
        <SeparatorItem key={conditionsText(each)} of={each} />
      ))}
    </ol>
  );
}

function SeparatorItem({ of }: { of: Separator }): JSX.Element {
  const [first] = of.conditions;
  const interval = of.low !== null ? ` (${number(of.low)} to ${of.high === null ? "∞" : number(of.high)})` : "";
  return (
    <li class={of.explained ? "explained" : ""}>
      <button
        type="button"
        class="link"
        title={`group by ${first.key} and select ${first.value}`}
        onClick={() => selectNodes(of)}
      >
        {conditionsText(of)}
      </button>
      <p>
        {count(of.sick)} of {plural(of.nodes, "node")} sick
        {of.risk_ratio === null ? ", no other node is" : `, ${number(of.risk_ratio)} × as often${interval}`}
      </p>
      <p class="muted">
        {percent(of.coverage)} of sick nodes · q {of.q < 0.001 ? "< 0.001" : number(of.q, 3)}
        {of.same_nodes > 0 && ` · ${plural(of.same_nodes, "other attribute")} can't be distinguished from it`}
      </p>
    </li>
  );
}
