/** What a track is of, as it stands in the address: `pid:4711`, `thread:4711/4712`, `pod:shop/web-0`. Pure. */
import { NO_FILTERS, type Filters } from "../../api";

const KINDS = ["pid", "comm", "container", "pod"] as const;
type Kind = (typeof KINDS)[number];

export interface TrackKey {
  filters: Filters;
  /** Of one thread. */
  tid: number | null;
  title: string;
}

/** Null for what is not the key of a track. */
export function parseTrack(text: string): TrackKey | null {
  const [kind, value] = splitOnce(text);
  const thread = kind === "thread" ? /^(\d+)\/(\d+)$/.exec(value) : null;
  if (thread) {
    return { filters: { ...NO_FILTERS, pid: thread[1] }, tid: Number(thread[2]), title: `thread ${thread[2]}` };
  }
  const known = KINDS.find((each) => each === kind);
  if (!known || value === "" || (known === "pid" && !/^\d+$/.test(value))) return null;
  return { filters: { ...NO_FILTERS, [known]: value }, tid: null, title: `${NAMES[known]} ${value}` };
}

const NAMES: Record<Kind, string> = { pid: "process", comm: "threads", container: "container", pod: "pod" };

function splitOnce(text: string): [string, string] {
  const at = text.indexOf(":");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** The key of a track of what a filter selects; null where it names no process, container, pod or thread. */
export function trackOf(filters: Filters): string | null {
  const kind = (["pid", "pod", "container", "comm"] as const).find((each) => filters[each] !== "");
  return kind ? `${kind}:${filters[kind]}` : null;
}
