/** What was lost, in words: kinds are counted in units of their own, so no sum of them means anything. Pure. */
import { count, duration, plural } from "./format";
import type { Loss } from "./types";

/** Kinds that are named in the header; the rest is counted. */
const MOST_KINDS = 2;

/** Kinds whose count is not simply so many of what their name says. */
const AMOUNTS: Record<string, (count: number) => string> = {
  "late-tick": (seconds) => `late by ${duration(seconds * 1000)}`,
  gap: (ms) => `${duration(ms)} not in the files`,
  overlap: (ms) => `${duration(ms)} twice in the files`,
  "disk-full": (rows) => `disk full: ${plural(rows, "row")} lost`,
  "sequence-gap": (lines) => `${plural(lines, "log line")} lost`,
  "rate-limit": (lines) => `${plural(lines, "log line")} left out`,
  "rate-lowered": (times) => `rate lowered ${often(times)}`,
  "rate-refused": (times) => `rate refused ${often(times)}`,
};

function often(times: number): string {
  return times === 1 ? "once" : `${count(times)} times`;
}

/** How much of one kind was lost. */
export function lossAmount({ kind, source, count: lost }: Pick<Loss, "kind" | "source" | "count">): string {
  if (kind in AMOUNTS) return AMOUNTS[kind](lost);
  const words = kind.replaceAll("-", " ");
  if (kind.startsWith("lost-")) return `${count(lost)} ${words.slice("lost ".length)} lost`;
  if (kind.endsWith("-failed")) return `${source} failed ${often(lost)}`;
  return `${words} ${often(lost)}`;
}

/** All of it in a few words, for the header. */
export function lossSummary(losses: readonly Loss[]): string {
  if (losses.length === 0) return "nothing lost";
  const sums = new Map<string, Loss>();
  for (const loss of losses) {
    // Of failures it matters what failed.
    const key = loss.kind.endsWith("-failed") ? `${loss.kind} ${loss.source}` : loss.kind;
    sums.set(key, { ...loss, count: loss.count + (sums.get(key)?.count ?? 0) });
  }
  const amounts = [...sums.values()].map(lossAmount);
  const others = amounts.length - MOST_KINDS;
  return [...amounts.slice(0, MOST_KINDS), ...(others > 0 ? [`${others} more`] : [])].join(" · ");
}
