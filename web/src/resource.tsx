/** A value read from the server, with its loading state and error message. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { ServerError } from "./http";
import { LoadingIndicator } from "./progress";

export interface Resource<Value> {
  /** The last answer; kept while a newer one is loading. */
  value: Value | null;
  /** The key that `value` was read for. */
  key: string | null;
  loading: boolean;
  /** Loading for longer than 200 ms: an indicator is shown. */
  slow: boolean;
  error: string | null;
  /** Stopped by the user. */
  stopped: boolean;
  /** Aborts it while it is loading. */
  signal: AbortSignal | null;
  retry: () => void;
  stop: () => void;
}

const SLOW_MS = 200;
const GONE_MS = 3000;

/**
 * Read whenever `key` changes; a null key reads nothing. An older request is aborted, so answers never arrive in the
 * wrong order. `keep` (true by default) shows the old value until the new one arrives.
 */
export function useResource<Value>(
  key: string | null,
  read: (signal: AbortSignal) => Promise<Value>,
  options: { keep?: boolean; delayMs?: number } = {},
): Resource<Value> {
  const [attempt, setAttempt] = useState(0);
  const [shown, setShown] = useState<Omit<Resource<Value>, "retry" | "stop">>(IDLE);
  const stop = useRef(nothing);
  const reader = useRef(read);
  reader.current = read;
  // Not useEffect, which would send the request a frame later.
  useLayoutEffect(() => {
    if (key === null) {
      setShown(IDLE);
      return undefined;
    }
    let later = 0;
    const abort = new AbortController();
    const keep = options.keep ?? true;
    const { signal } = abort;
    setShown((old) => ({ ...(keep ? old : IDLE), loading: true, slow: false, stopped: false, signal }));
    const slow = window.setTimeout(() => setShown((old) => ({ ...old, slow: old.loading })), SLOW_MS);
    const begin = (): void => {
      reader.current(signal).then(
        (value) => {
          if (!signal.aborted) setShown({ ...IDLE, value, key });
        },
        (error: unknown) => {
          if (signal.aborted) return;
          setShown((old) => ({ ...old, loading: false, slow: false, signal: null, error: errorMessage(error) }));
          // Retry by itself when the server is gone: it may come back.
          if (error instanceof ServerError && error.status === 0) {
            later = window.setTimeout(() => setAttempt((count) => count + 1), GONE_MS);
          }
        },
      );
    };
    const delayed = options.delayMs ? window.setTimeout(begin, options.delayMs) : 0;
    if (!delayed) begin();
    const end = (): void => {
      abort.abort();
      window.clearTimeout(slow);
      window.clearTimeout(delayed);
      window.clearTimeout(later);
    };
    stop.current = () => {
      end();
      // An older answer does not belong to this key.
      setShown({ ...IDLE, stopped: true });
    };
    return end;
  }, [key, attempt]);
  return { ...shown, retry: () => setAttempt((count) => count + 1), stop: () => stop.current() };
}

const nothing = (): void => undefined;
const IDLE = { value: null, key: null, loading: false, slow: false, error: null, stopped: false, signal: null };

export function errorMessage(error: unknown): string {
  if (error instanceof ServerError) return error.message;
  return error instanceof Error ? error.message : String(error);
}

/** Shown in place of a drawing: loading, failed, stopped, or empty with its reason. */
export function Placeholder(props: {
  of: Resource<unknown>;
  what: string;
  empty?: string | false;
}): JSX.Element | null {
  const { of, what, empty } = props;
  if (of.error !== null) {
    return (
      <p class="placeholder trouble" role="alert">
        {of.error}{" "}
        <button type="button" onClick={of.retry}>
          retry
        </button>
      </p>
    );
  }
  if (of.stopped) {
    return (
      <p class="placeholder muted">
        Stopped.{" "}
        <button type="button" onClick={of.retry}>
          read {what}
        </button>
      </p>
    );
  }
  if (of.loading && of.slow) return <LoadingIndicator what={what} signal={of.signal} onStop={of.stop} />;
  if (!of.loading && empty) return <p class="placeholder muted">{empty}</p>;
  return null;
}
