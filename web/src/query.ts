/** The filter as a line of words: `comm:kubelet cpu:39 stack:"lru.*pages"`. Pure. */
import { NO_FILTERS, type Filters } from "./api";
import { parseCpus, printCpus } from "./cpulist";

export interface Query {
  filters: Filters;
  cores: number[] | null;
}

export const FILTER_WORDS: Record<string, string> = {
  comm: "process name",
  pid: "process number",
  container: "container, by the start of its id or name",
  pod: "pod, by the start of its id, namespace/name or name",
  cpu: "cores, such as 0,3-7",
  stack: "regular expression over the frames",
  kind: "kernel or user",
};

const WORD = /(\w+):(?:"((?:[^"\\]|\\.)*)"|(\S*))|(\S+)/g;

/** The query, or a sentence that says what is wrong with the line. */
export function parseQuery(line: string): Query | string {
  const filters: Filters = { ...NO_FILTERS };
  let cores: number[] | null = null;
  for (const [whole, key, quoted, bare, loose] of line.matchAll(WORD)) {
    if (loose !== undefined) {
      // A word alone is a process name: the most common wish.
      if (filters.comm) return `“${loose}”: say which it is, such as stack:${loose}`;
      filters.comm = loose;
      continue;
    }
    const value = quoted !== undefined ? quoted.replace(/\\(["\\])/g, "$1") : bare;
    if (!value) return `“${whole}”: say what to look for after the colon`;
    const complaint = assign(filters, key, value);
    if (complaint) return complaint;
    if (key === "cpu") {
      cores = parseCpus(value);
      if (!cores) return `cpu:${value}: cores are written like 0,3-7`;
    }
  }
  return { filters, cores };
}

function assign(filters: Filters, key: string, value: string): string | null {
  switch (key) {
    case "cpu":
      return null;
    case "pid":
      if (!/^\d+$/.test(value)) return `pid:${value}: a process number is digits`;
      filters.pid = value;
      return null;
    case "kind":
      if (value !== "kernel" && value !== "user") return `kind:${value}: it is kernel or user`;
      filters.kind = value;
      return null;
    case "stack":
      try {
        new RegExp(value);
      } catch {
        return `stack:${value} is no regular expression`;
      }
      filters.stack = value;
      return null;
    case "comm":
    case "container":
    case "pod":
      filters[key] = value;
      return null;
    default:
      return `${key}: is no filter; there are ${Object.keys(FILTER_WORDS).join(", ")}`;
  }
}

export function printQuery({ filters, cores }: Query): string {
  const words: string[] = [];
  for (const key of ["comm", "pid", "container", "pod", "stack", "kind"] as const) {
    if (filters[key]) words.push(`${key}:${quote(filters[key])}`);
  }
  if (cores) words.push(`cpu:${printCpus(cores)}`);
  return words.join(" ");
}

function quote(value: string): string {
  return /[\s"]/.test(value) ? `"${value.replace(/(["\\])/g, "\\$1")}"` : value;
}
