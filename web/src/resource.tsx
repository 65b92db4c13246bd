/** Something read from the server: its value, that it is being read, and the sentence when it could not be. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { JSX } from "preact";
import { ServerError } from "./api";

export interface Resource<Value> {
  /** The last answer; stays while a newer one is being read. */
  value: Value | null;
  /** The question that `value` answers. */
  key: string | null;
  loading: boolean;
  /** Loading for long enough (200 ms) that it has to be said. */
  slow: boolean;
  error: string | null;
  retry: () => void;
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
  const [shown, setShown] = useState<Omit<Resource<Value>, "retry">>(AT_REST);
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
    setShown((old) => ({ ...(keep ? old : AT_REST), loading: true, slow: false }));
    const slow = window.setTimeout(() => setShown((old) => ({ ...old, slow: old.loading })), SLOW_MS);
    const begin = window.setTimeout(() => {
      reader.current(abort.signal).then(
        (value) => {
          if (!abort.signal.aborted) setShown({ value, key, loading: false, slow: false, error: null });
        },
        (error: unknown) => {
          if (abort.signal.aborted) return;
          setShown((old) => ({ ...old, loading: false, slow: false, error: sentence(error) }));
          // A server that is gone may come back: nobody has to press a button for that.
          if (error instanceof ServerError && error.status === 0) {
            later = window.setTimeout(() => setAgain((count) => count + 1), GONE_MS);
          }
        },
      );
    }, options.delayMs ?? 0);
    return () => {
      abort.abort();
      window.clearTimeout(slow);
      window.clearTimeout(begin);
      window.clearTimeout(later);
    };
  }, [key, again]);
  return { ...shown, retry: () => setAgain((count) => count + 1) };
}

const AT_REST = { value: null, key: null, loading: false, slow: false, error: null };

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
  if (of.loading && of.slow) return <p class="standby reading">reading {what} …</p>;
  if (!of.loading && empty) return <p class="standby muted">{empty}</p>;
  return null;
}
