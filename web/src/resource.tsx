/** Something read from the server: its value, that it is being read, and the sentence when it could not be. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { ServerError } from "./api";
import { BeingRead } from "./progress";

export interface Resource<Value> {
  /** The last answer; stays while a newer one is being read. */
  value: Value | null;
  /** The question that `value` answers. */
  key: string | null;
  loading: boolean;
  /** Loading for long enough (200 ms) that it has to be said. */
  slow: boolean;
  error: string | null;
  /** Somebody stopped it. */
  stopped: boolean;
  /** What aborts it while it is being read. */
  signal: AbortSignal | null;
  retry: () => void;
  stop: () => void;
}

const SLOW_MS = 200;
const GONE_MS = 3000;

/**
 * Read whenever `key` changes; a null key reads nothing. An older question is aborted, so answers never arrive in the
 * wrong order. `keep` (true by default) shows the old value until the new one is there.
 */
export function useResource<Value>(
  key: string | null,
  read: (signal: AbortSignal) => Promise<Value>,
  options: { keep?: boolean; delayMs?: number } = {},
): Resource<Value> {
  const [again, setAgain] = useState(0);
  const [shown, setShown] = useState<Omit<Resource<Value>, "retry" | "stop">>(AT_REST);
  const stop = useRef(nothing);
  const reader = useRef(read);
  reader.current = read;
  useEffect(() => {
    if (key === null) {
      setShown(AT_REST);
      return undefined;
    }
    let later = 0;
    const abort = new AbortController();
    const keep = options.keep ?? true;
    const { signal } = abort;
    setShown((old) => ({ ...(keep ? old : AT_REST), loading: true, slow: false, stopped: false, signal }));
    const slow = window.setTimeout(() => setShown((old) => ({ ...old, slow: old.loading })), SLOW_MS);
    const begin = window.setTimeout(() => {
      reader.current(signal).then(
        (value) => {
          if (!signal.aborted) setShown({ ...AT_REST, value, key });
        },
        (error: unknown) => {
          if (signal.aborted) return;
          setShown((old) => ({ ...old, loading: false, slow: false, signal: null, error: sentence(error) }));
          // A server that is gone may come back: nobody has to press a button for that.
          if (error instanceof ServerError && error.status === 0) {
            later = window.setTimeout(() => setAgain((count) => count + 1), GONE_MS);
          }
        },
      );
    }, options.delayMs ?? 0);
    const end = (): void => {
      abort.abort();
      window.clearTimeout(slow);
      window.clearTimeout(begin);
      window.clearTimeout(later);
    };
    stop.current = () => {
      end();
      // An older answer is no answer to this.
      setShown({ ...AT_REST, stopped: true });
    };
    return end;
  }, [key, again]);
  return { ...shown, retry: () => setAgain((count) => count + 1), stop: () => stop.current() };
}

const nothing = (): void => undefined;
const AT_REST = { value: null, key: null, loading: false, slow: false, error: null, stopped: false, signal: null };

export function sentence(error: unknown): string {
  if (error instanceof ServerError) return error.message;
  return error instanceof Error ? error.message : String(error);
}

/** What stands in the place of a drawing that is not there: being read, failed, or nothing to draw. */
export function Standby(props: { of: Resource<unknown>; what: string; empty?: string | false }): JSX.Element | null {
  const { of, what, empty } = props;
  if (of.error !== null) {
    return (
      <p class="standby trouble" role="alert">
        {of.error}{" "}
        <button type="button" onClick={of.retry}>
          try again
        </button>
      </p>
    );
  }
  if (of.stopped) {
    return (
      <p class="standby muted">
        Stopped before it was read.{" "}
        <button type="button" onClick={of.retry}>
          read {what}
        </button>
      </p>
    );
  }
  if (of.loading && of.slow) return <BeingRead what={what} signal={of.signal} onStop={of.stop} />;
  if (!of.loading && empty) return <p class="standby muted">{empty}</p>;
  return null;
}
