/** Moments that a person types: the grammar of the commands (src/exhume/model/times.py). Pure. */
import { moment as shown, offset } from "../format";
import type { Span } from "../types";

export const FORMS = "03:14:07, 10m ago, 2026-03-01T03:14:07Z or @1772334847";

const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DAY_MS = 86_400_000;
/** A day on which the clocks go forward may not have the time at all. */
const DAYS = 3;
const MOMENT =
  /^(?:(\d{4})-(\d{2})-(\d{2})(?:[Tt]|\s+))?(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?\s*([Zz]|[+-]\d{2}:\d{2})?$/;

/** What relative times and times without a zone lean on. */
export interface Reference {
  now: number;
  /** The recorded time. */
  whole: Span;
  live: boolean;
  utc: boolean;
}

/** The moment in milliseconds, or a sentence that says why there is none to go to. */
export function parseMoment(text: string, at: Reference): number | string {
  const found = read(text.trim(), at);
  if (found === null) return `${text.trim()} is not a time: write ${FORMS}`;
  const { since, until } = at.whole;
  // The newest second of a live recording is always a little behind the clock.
  if (at.live && found >= until && found < Math.max(at.now, until) + UNITS.s) return until - UNITS.s;
  if (found < since) return `${shown(found, at.utc)} is before the recording, which begins at ${shown(since, at.utc)}`;
  if (found >= until) return `${shown(found, at.utc)} is after the recording, which ends at ${shown(until, at.utc)}`;
  return found;
}

function read(text: string, at: Reference): number | null {
  if (text === "now") return at.now;
  const unix = /^@(\d{1,11}(?:\.\d{1,9})?)$/.exec(text);
  if (unix) return Math.round(Number(unix[1]) * 1000);
  const ago = /^(.+?)\s+ago$/.exec(text);
  if (ago) {
    const before = durationOf(ago[1]);
    return before === null ? null : at.now - before;
  }
  return readClock(text, at);
}

/** `10m`, `1h30m`, `1.5h` in milliseconds. */
function durationOf(text: string): number | null {
  if (!/^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/.test(text)) return null;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  return parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * UNITS[unit], 0);
}

function readClock(text: string, at: Reference): number | null {
  const parts = MOMENT.exec(text);
  if (!parts) return null;
  const [hour, minute, second] = [parts[4], parts[5], parts[6] ?? "0"].map(Number);
  if (hour > 23 || minute > 59 || second > 59) return null;
  const clock = ((hour * 60 + minute) * 60 + second) * 1000 + Math.floor(Number(`0.${parts[7] ?? "0"}`) * 1000);
  const zone = zoneOf(parts[8]);
  const moment = (local: number): number => (zone === null ? fromShown(local, at.utc) : local - zone);
  if (parts[1]) {
    const [year, month, date] = [parts[1], parts[2], parts[3]].map(Number);
    const midnight = Date.UTC(year, month - 1, date);
    return new Date(midnight).getUTCDate() === date ? moment(midnight + clock) : null;
  }
  // The latest such time that is not after the end of the recording.
  const last = at.whole.until + (zone ?? offset(at.whole.until, at.utc));
  const today = Math.floor(last / DAY_MS) * DAY_MS;
  for (let days = 0; days <= DAYS; days++) {
    const found = moment(today - days * DAY_MS + clock);
    if (found < at.whole.until) return found;
  }
  return null;
}

/** Milliseconds ahead of UTC; null is the shown zone. */
function zoneOf(text: string | undefined): number | null {
  if (!text) return null;
  if (text.toUpperCase() === "Z") return 0;
  const minutes = Number(text.slice(1, 3)) * 60 + Number(text.slice(4, 6));
  return (text.startsWith("-") ? -minutes : minutes) * 60_000;
}

/** The moment at which the shown clock has this time. */
function fromShown(local: number, utc: boolean): number {
  const near = local - offset(local, utc);
  return local - offset(near, utc);
}
