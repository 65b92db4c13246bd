/** The pieces of a page's state in its address bar: how each is read and written. Pure. */

export interface Field<Value> {
  fallback: Value;
  /** Undefined where the text is invalid: the field keeps its default. */
  parse: (text: string) => Value | undefined;
  print: (value: Value) => string;
}

export const moment: Field<number | null> = {
  fallback: null,
  parse: (text) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined),
  print: (value) => String(Math.round(value ?? 0)),
};

/** Milliseconds that may be negative. */
export const offset: Field<number | null> = {
  fallback: null,
  parse: (text) => (/^-?\d{1,15}$/.test(text) ? Number(text) : undefined),
  print: (value) => String(Math.round(value ?? 0)),
};

export const text: Field<string> = { fallback: "", parse: (value) => value, print: (value) => value };

export function choice<Value extends string>(fallback: Value, all: readonly Value[]): Field<Value> {
  return { fallback, parse: (value) => all.find((each) => each === value), print: (value) => value };
}

export function flag(fallback: boolean): Field<boolean> {
  return {
    fallback,
    parse: (value) => (value === "1" ? true : value === "0" ? false : undefined),
    print: (value) => (value ? "1" : "0"),
  };
}

export function whole(fallback: number, least: number, most: number): Field<number> {
  return {
    fallback,
    parse: (value) => {
      const number = /^\d{1,9}$/.test(value) ? Number(value) : NaN;
      return number >= least && number <= most ? number : undefined;
    },
    print: String,
  };
}

/** A list of texts that may hold anything: parts are escaped, then joined by `;`. */
export function list(fallback: string[]): Field<string[]> {
  return {
    fallback,
    parse: (value) => (value === "" ? [] : value.split(";").map((part) => unescapePart(part))),
    print: (value) => value.map((part) => part.replaceAll("%", "%25").replaceAll(";", "%3B")).join(";"),
  };
}

function unescapePart(part: string): string {
  return part.replaceAll("%3B", ";").replaceAll("%25", "%");
}

/** One field per piece of state; the key is its name in the address. */
export type Fields<State extends object> = { [Key in keyof State]: Field<State[Key]> };

function keysOf<State extends object>(fields: Fields<State>): (keyof State & string)[] {
  return Object.keys(fields) as (keyof State & string)[];
}

export function defaultsOf<State extends object>(fields: Fields<State>): State {
  return Object.fromEntries(keysOf(fields).map((key) => [key, fields[key].fallback])) as State;
}

/** The state of a link; missing and invalid fields have their default. */
export function parseFields<State extends object>(fields: Fields<State>, hash: string): State {
  const state: State = defaultsOf(fields);
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  for (const key of keysOf(fields)) {
    const text = params.get(key);
    const value = text === null ? undefined : fields[key].parse(text);
    if (value !== undefined) (state as Record<string, unknown>)[key] = value;
  }
  return state;
}

/** `#since=...&until=...`: only what differs from the defaults, in a fixed order. */
export function printFields<State extends object>(fields: Fields<State>, state: State): string {
  const params = new URLSearchParams();
  for (const key of keysOf(fields)) {
    const { fallback, print } = fields[key] as Field<unknown>;
    if (state[key] !== null && print(state[key]) !== (fallback === null ? null : print(fallback))) {
      params.set(key, print(state[key]));
    }
  }
  const text = params.toString().replaceAll("%2C", ",").replaceAll("%3B", ";").replaceAll("%3A", ":");
  return text ? `#${text}` : "";
}
