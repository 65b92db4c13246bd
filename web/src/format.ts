/** Times in the viewer's zone (or UTC), and numbers with units and thousands separators. */
import type { MissingSource, Span } from "./types";

const pad = (number: number, width = 2): string => String(number).padStart(width, "0");

interface Clock {
  year: number;
  month: number;
  day: number;
  hour: number;
  minute: number;
  second: number;
  ms: number;
}

function clockOf(at: number, utc: boolean): Clock {
  const date = new Date(at + offset(at, utc));
  return {
    year: date.getUTCFullYear(),
    month: date.getUTCMonth() + 1,
    day: date.getUTCDate(),
    hour: date.getUTCHours(),
    minute: date.getUTCMinutes(),
    second: date.getUTCSeconds(),
    ms: date.getUTCMilliseconds(),
  };
}

/** `03:14:07`, with milliseconds where the moment is not a whole second and `fine` asks for them. */
export function time(at: number, utc: boolean, fine = false): string {
  const { hour, minute, second, ms } = clockOf(at, utc);
  return `${pad(hour)}:${pad(minute)}:${pad(second)}${fine && ms ? `.${pad(ms, 3)}` : ""}`;
}

export function day(at: number, utc: boolean): string {
  const { year, month, day: date } = clockOf(at, utc);
  return `${year}-${pad(month)}-${pad(date)}`;
}

/** `2026-11-15 03:14:07`. */
export function moment(at: number, utc: boolean, fine = false): string {
  return `${day(at, utc)} ${time(at, utc, fine)}`;
}

/** A moment of a recording: with its day where the recording has several. */
export function stamp(at: number, utc: boolean, whole: Span | null): string {
  const several = whole !== null && day(whole.since, utc) !== day(whole.until, utc);
  return several ? moment(at, utc) : time(at, utc);
}

/** `03:14:02 – 03:14:09`, with days where they differ, and with offsets where clocks were changed in between. */
export function range(since: number, until: number, utc: boolean): string {
  const fine = since % 1000 !== 0 || until % 1000 !== 0;
  const fineEnough = fine && until - since < 10_000;
  const times =
    day(since, utc) === day(until, utc)
      ? [time(since, utc, fineEnough), time(until, utc, fineEnough)]
      : [moment(since, utc), moment(until, utc)];
  const zones = [zone(since, utc), zone(until, utc)];
  return zones[0] === zones[1] ? times.join(" – ") : times.map((each, i) => `${each} ${zones[i]}`).join(" – ");
}

/** The same with the day in front: recordings hold weeks. */
export function datedRange(since: number, until: number, utc: boolean): string {
  const times = range(since, until, utc);
  return day(since, utc) === day(until, utc) ? `${day(since, utc)} ${times}` : times;
}

let fixedOffset: number | null = null;

/** Shows times at a fixed distance from UTC instead of in the viewer's zone: a report has the zone of its node. */
export function fixOffset(ms: number): void {
  fixedOffset = ms;
}

/** How far the shown clock is ahead of UTC at a moment, in milliseconds. */
export function offset(at: number, utc: boolean): number {
  return utc ? 0 : (fixedOffset ?? -new Date(at).getTimezoneOffset() * 60_000);
}

/** `UTC+02:00`. */
export function zone(at: number, utc: boolean): string {
  const minutes = offset(at, utc) / 60_000;
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
}

/** `12 h 04 m`, `48 s`, `350 ms`: two units at most. */
export function duration(ms: number): string {
  const size = Math.max(0, ms);
  if (size < 1) return `${number(size, 2)} ms`;
  if (Math.round(size) < 1000) return `${Math.round(size)} ms`;
  if (size < 10_000) return `${trim(size / 1000, 1)} s`;
  const seconds = Math.round(size / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m${seconds % 60 ? ` ${pad(seconds % 60)} s` : ""}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h${minutes % 60 ? ` ${pad(minutes % 60)} m` : ""}`;
  return `${Math.floor(hours / 24)} d${hours % 24 ? ` ${pad(hours % 24)} h` : ""}`;
}

const plain = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** `68,680`. */
export function count(value: number): string {
  return plain.format(value);
}

/** At most so many decimals, with thousands separators. */
export function number(value: number, decimals = 1): string {
  return new Intl.NumberFormat("en-US", { maximumFractionDigits: decimals }).format(value);
}

/** `97 %`, `3.4 %`, `0.02 %`: a share of 1, with the digits that matter. */
export function percent(share: number): string {
  const value = share * 100;
  const decimals = value >= 10 || value === 0 ? 0 : value >= 1 ? 1 : 2;
  return `${number(value, decimals)} %`;
}

/** `confidence 93 %, almost certain`: a confidence and its name. */
export function confidence(value: number): string {
  const name = CONFIDENCE.find(([least]) => value >= least)?.[1] ?? "";
  return `confidence ${percent(value)}, ${name}`;
}

const CONFIDENCE: [number, string][] = [
  [0.9, "almost certain"],
  [0.75, "likely"],
  [0.5, "plausible"],
  [0, "possible"],
];

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit++;
  }
  return `${number(size, size < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

/** A number with the unit of a lane or a piece of evidence. */
export function quantity(value: number, unit: string): string {
  if (unit === "bytes" || unit === "B") return bytes(value);
  if (unit === "ns") return duration(value / 1e6);
  if (unit === "permille") return percent(value / 1000);
  if (unit === "%") return `${number(value, value < 10 ? 1 : 0)} %`;
  const decimals = Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return unit ? `${number(value, decimals)} ${unit}` : number(value, decimals);
}

export function plural(amount: number, one: string, many = `${one}s`): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

function trim(value: number, decimals: number): string {
  return value.toFixed(decimals).replace(/\.?0+$/, "");
}

/** A source that is unavailable, why, and what would enable it: `stacks: no perf_event_open; run as root`. */
export function missingText({ source, reason, remedy }: MissingSource): string {
  return `${source}: ${reason}${remedy && `; ${remedy}`}`;
}
