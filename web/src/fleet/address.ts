/** The whole state of the fleet page and its form in the address bar. Pure: `state.ts` connects it to the browser. */
import { choice, flag, list, moment, parseFields, printFields, text, type Field, type Fields } from "../fields";

export const ORDERS = ["name", "worst"] as const;
export type Order = (typeof ORDERS)[number];
/** How much time the list of incidents looks back from the end of the hour. */
export const REACHES = ["hour", "day", "all"] as const;
export type Reach = (typeof REACHES)[number];

export const HOUR_MS = 3_600_000;

export interface FleetState {
  /** The hour that is shown; null is the newest. */
  at: number | null;
  /** The attribute that nodes are grouped by. */
  group: string;
  /** The measure that nodes are coloured by. */
  measure: string;
  order: Order;
  /** The selected group: an attribute and its value (empty: not set); null is all nodes. */
  pick: Selection | null;
  /** The selected node. */
  node: string;
  reach: Reach;
  /** Only incidents of this cause; empty is every cause. */
  cause: string;
  utc: boolean;
}

export interface Selection {
  key: string;
  value: string;
}

const parts = list([]);
const pick: Field<Selection | null> = {
  fallback: null,
  parse: (given) => {
    const [key, value] = parts.parse(given) ?? [];
    return key ? { key, value: value ?? "" } : undefined;
  },
  print: (value) => (value ? parts.print([value.key, value.value]) : ""),
};

const name = (fallback: string): Field<string> => ({ ...text, fallback });

const FIELDS: Fields<FleetState> = {
  at: moment,
  group: name("zone"),
  measure: name("longest_stall_s"),
  order: choice<Order>("name", ORDERS),
  pick,
  node: text,
  reach: choice<Reach>("day", REACHES),
  cause: text,
  utc: flag(false),
};

export function parseAddress(hash: string): FleetState {
  return consistent(parseFields(FIELDS, hash));
}

export function printAddress(state: FleetState): string {
  return printFields(FIELDS, state);
}

/** An hour begins with its first millisecond. */
export function consistent(state: FleetState): FleetState {
  return state.at === null ? state : { ...state, at: Math.floor(state.at / HOUR_MS) * HOUR_MS };
}
