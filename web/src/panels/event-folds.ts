/** Repeated lines of a log as one: those that differ in numbers and ids alone. Pure. */
import type { NodeEvent } from "../types";

export interface EventFold {
  /** In the order of time; one at least. */
  events: NodeEvent[];
  first: NodeEvent;
  last: NodeEvent;
  key: string;
}

/** Hexadecimal of this length is an id even without a digit in it: `vethabcdefa`. */
const IDS = /[0-9a-f]{7,}\b/gi;
/** Digits with the hexadecimal letters around them: `veth5f2a3c`, `0x1f`, `12.5`. */
const NUMBERS = /[0-9a-f]*\d[0-9a-f]*/gi;

/** What is the same in all lines of a fold. */
export function patternOf(text: string): string {
  return text.replace(IDS, "#").replace(NUMBERS, "#").replace(/#(?:[.:x-]*#)+/g, "#");
}

/** Each line of its kind and severity once, in the order of its first appearance. */
export function foldEvents(events: readonly NodeEvent[], fold = true): EventFold[] {
  const found = new Map<string, EventFold>();
  events.forEach((event, i) => {
    const key = fold ? `${event.kind} ${event.severity} ${patternOf(event.text)}` : String(i);
    const known = found.get(key);
    if (known) {
      known.events.push(event);
      known.last = event;
    } else found.set(key, { events: [event], first: event, last: event, key });
  });
  return [...found.values()];
}

/** The cores that a fold names, each once. */
export function coresOf({ events }: EventFold): number[] {
  const cores = new Set(events.map((event) => event.cpu).filter((cpu) => cpu !== null));
  return [...cores].sort((a, b) => a - b);
}
