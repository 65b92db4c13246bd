/** Progress of slow requests: the server counts the segments that it has read. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { count } from "./format";
import type { Progress, ProgressAnswer } from "./types";

/** The id of each request on the server, by the signal that aborts it. */
const ids = new WeakMap<AbortSignal, string>();
const PAGE = Math.random().toString(36).slice(2, 10);
const POLL_MS = 400;
/** Faster requests show no progress. */
const FIRST_POLL_MS = 600;
const UNKNOWN = { done: 0, of: 0 };

/** The id of a request, remembered for its signal. Equal requests have the same id. */
export function requestId(path: string, signal?: AbortSignal): string {
  let hash = 0x811c9dc5;
  for (let i = 0; i < path.length; i++) hash = Math.imul(hash ^ path.charCodeAt(i), 0x01000193);
  const id = `${PAGE}-${(hash >>> 0).toString(36)}-${path.length}`;
  if (signal) ids.set(signal, id);
  return id;
}

/** The progress of the request of a signal (of 0 segments where it is unknown); null while none is shown. */
export function useProgress(signal: AbortSignal | null): Progress | null {
  const [progress, setProgress] = useState<Progress | null>(null);
  useEffect(() => {
    setProgress(null);
    if (signal === null) return undefined;
    let timer = window.setTimeout(poll, FIRST_POLL_MS);
    async function poll(): Promise<void> {
      const id = signal && ids.get(signal);
      const found = id ? await fetchProgress(id) : null;
      if (signal?.aborted || timer === 0) return;
      setProgress((old) => found ?? old ?? UNKNOWN);
      timer = window.setTimeout(() => void poll(), POLL_MS);
    }
    return () => {
      window.clearTimeout(timer);
      timer = 0;
    };
  }, [signal]);
  return progress;
}

async function fetchProgress(id: string): Promise<Progress | null> {
  try {
    const answer = await fetch(`./api/progress?requests=${id}`);
    return answer.ok ? (((await answer.json()) as ProgressAnswer).requests[id] ?? null) : null;
  } catch {
    // The request itself reports that the server is gone.
    return null;
  }
}

export function progressLabel({ done, of }: Progress): string {
  return of > 0 ? ` ${count(done)} of ${count(of)} segments` : "";
}

/** A slow request: what is read, its progress, and a button that stops it. */
export function LoadingIndicator(props: {
  what: string;
  signal: AbortSignal | null;
  onStop?: () => void;
}): JSX.Element {
  const progress = useProgress(props.signal);
  return (
    <div class="placeholder reading" data-testid="loading">
      <p>
        reading {props.what} …
        {progress && <span>{progressLabel(progress)}</span>}
      </p>
      {progress && progress.of > 0 && (
        <progress max={progress.of} value={progress.done} aria-label={`reading ${props.what}`} />
      )}
      {progress && props.onStop && (
        <button type="button" onClick={props.onStop}>
          stop
        </button>
      )}
    </div>
  );
}
