/** The filter as one line: `comm:kubelet cpu:39 stack:"lru.*pages"`. Pure. */
import { NO_FILTERS, type Filters } from "./api";
import { parseCpus, printCpus } from "./cpulist";

export interface Query {
  filters: Filters;
  cores: number[] | null;
}

export const FILTER_KEYS: Record<string, string> = {
  comm: "process name",
  pid: "process id",
  container: "container, by the start of its id or name",
  pod: "pod, by the start of its id, namespace/name or name",
  cpu: "cores, such as 0,3-7",
  stack: "regular expression over the frames",
  kind: "kernel or user",
};

const TERM = /(\w+):(?:"((?:[^"\\]|\\.)*)"|(\S*))|(\S+)/g;

/** The query, or a message that says what is wrong with the line. */
export function parseQuery(line: string): Query | string {
  const filters: Filters = { ...NO_FILTERS };
  let cores: number[] | null = null;
  const given = new Set<string>();
  for (const [whole, key, quoted, bare, loose] of line.matchAll(TERM)) {
    if (loose !== undefined) {
      // A term without a key is a process name, the most common filter.
      if (filters.comm || given.has("comm")) return `“${loose}” needs a key, for example stack:${loose}`;
      filters.comm = loose;
      given.add("comm");
      continue;
    }
    const value = quoted !== undefined ? quoted.replace(/\\(["\\])/g, "$1") : bare;
    if (!value) return `“${whole}” needs a value after the colon`;
    if (given.has(key)) return `${key}: is there twice; one of each can be filtered by`;
    given.add(key);
    const error = assign(filters, key, value);
    if (error) return error;
    if (key === "cpu") {
      cores = parseCpus(value);
      if (!cores) return `cpu:${value}: not a list of cores, for example 0,3-7`;
    }
  }
  return { filters, cores };
}

function assign(filters: Filters, key: string, value: string): string | null {
  switch (key) {
    case "cpu":
      return null;
    case "pid":
      if (!/^\d+$/.test(value)) return `pid:${value}: not a process id`;
      filters.pid = value;
      return null;
    case "kind":
      if (value !== "kernel" && value !== "user") return `kind:${value}: must be kernel or user`;
      filters.kind = value;
      return null;
    case "stack":
      try {
        new RegExp(value);
      } catch {
        return `stack:${value} is not a regular expression`;
      }
      filters.stack = value;
      return null;
    case "comm":
    case "container":
    case "pod":
      filters[key] = value;
      return null;
    default:
      return `${key}: is not a filter; use ${Object.keys(FILTER_KEYS).join(", ")}`;
  }
}

export function printQuery({ filters, cores }: Query): string {
  const terms: string[] = [];
  for (const key of ["comm", "pid", "container", "pod", "stack", "kind"] as const) {
    if (filters[key]) terms.push(`${key}:${quote(filters[key])}`);
  }
  if (cores) terms.push(`cpu:${printCpus(cores)}`);
  return terms.join(" ");
}

function quote(value: string): string {
  return /[\s"]/.test(value) ? `"${value.replace(/(["\\])/g, "\\$1")}"` : value;
}
