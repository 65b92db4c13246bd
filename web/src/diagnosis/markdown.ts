/** A diagnosis as Markdown, for a ticket. What comes from the node is quoted: none of it can be markup. Pure. */
import { confidence, datedRange, moment, stamp, zone } from "../format";
import type { ChainLink, Diagnosis, Finding, Remedy, Span } from "../types";
import { chainOf, culpritFacts, evidencePlace, ROLES, shownValue } from "./chain";

export interface TicketOptions {
  /** What was diagnosed. */
  span: Span;
  /** The link to the view. */
  link: string;
  utc: boolean;
}

export function ticketMarkdown(of: Diagnosis, options: TicketOptions): string {
  const { span, link, utc } = options;
  const when = `${datedRange(span.since, span.until, utc)} ${zone(span.since, utc)}`;
  const { baseline, focus } = of;
  const looked = [
    `- **Node**: ${code(of.node)}`,
    `- **Window**: ${when}`,
    `- **Stands out**: ${datedRange(focus.since_ms, focus.until_ms, utc)}`,
    baseline && `- **Compared with**: ${datedRange(baseline.since_ms, baseline.until_ms, utc)}`,
  ];
  const parts = [
    `## ${of.verdict.toUpperCase()}: ${escape(of.sentence)}`,
    lines(looked),
    ...of.findings.filter((each) => each.severity !== "info").map((each) => findingMarkdown(each, of, utc)),
    of.failures.length > 0 &&
      lines([
        "**Failures that it explains**",
        "",
        ...of.failures.map((each) => `- ${moment(each.at_ms, utc)} ${escape(`${each.kind}: ${each.text}`)}`),
      ]),
    of.blind_spots.length > 0 && lines(["**Blind spots**", "", ...of.blind_spots.map((each) => `- ${escape(each)}`)]),
    `[Open it in exhume](<${link}>)`,
  ];
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

function findingMarkdown(of: Finding, within: Diagnosis, utc: boolean): string {
  const whole = { since: within.window.since_ms, until: within.window.until_ms };
  const facts = [
    `- **Cause**: ${escape(of.title)} (${code(of.cause)}), ${confidence(of.confidence)}`,
    of.why_not_sure.length > 0 && `- **Confidence limited by**: ${escape(of.why_not_sure.join("; "))}`,
    ...culpritFacts(of.culprit).map(([name, value]) => `- **${capital(name)}**: ${code(value)}`),
  ];
  const chain = chainOf(of).map((link, index) => chainMarkdown(link, index + 1, utc, whole));
  return [
    `### ${escape(of.title)}`,
    of.summary !== within.sentence && escape(of.summary),
    lines(facts),
    chain.length > 0 && lines(chain),
    of.remedies.length > 0 && lines(["**Remedies**", "", ...of.remedies.map(remedyMarkdown)]),
  ]
    .filter(Boolean)
    .join("\n\n");
}

function chainMarkdown(link: ChainLink, place: number, utc: boolean, whole: Span): string {
  const head = `${place}. ${stamp(link.at_ms, utc, whole)} **${ROLES[link.role]}**: ${escape(link.text)}`;
  const evidence = link.evidence.map(
    (each) => `   - ${code(`${each.table}.${each.column}`)} ${code(shownValue(each))} (${evidencePlace(each, utc)})`,
  );
  return lines([head, ...evidence]);
}

function remedyMarkdown(of: Remedy): string {
  const where = of.node ? ` On ${code(of.node)}:` : "";
  const cost = of.cost ? ` (${escape(of.cost)})` : "";
  return lines([`- ${escape(of.text || of.id)}${cost}${where}`, of.command && `  ${code(of.command)}`]);
}

function capital(name: string): string {
  return `${name.charAt(0).toUpperCase()}${name.slice(1)}`;
}

function lines(of: (string | false | null)[]): string {
  return of.filter((each) => each !== false && each !== null).join("\n");
}

/** Names and log lines are shown as they are: no emphasis, links, HTML or mentions. */
export function escape(text: string): string {
  return text.replace(/\s+/g, " ").replace(/[\\`*_[\]<>|~#]/g, "\\$&").replaceAll("@", "@\u200b");
}

/** A code span, fenced with more backticks than the text has in a row. */
export function code(text: string): string {
  const flat = text.replace(/\s+/g, " ").trim();
  if (flat === "") return "";
  const longest = Math.max(0, ...[...flat.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return longest === 0 ? `${fence}${flat}${fence}` : `${fence} ${flat} ${fence}`;
}
