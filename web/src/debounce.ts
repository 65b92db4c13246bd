/** A value once it has stopped changing, for what is too expensive to update on every frame. */
import { useEffect, useState } from "preact/hooks";

export function useDebounced<Value>(value: Value, afterMs: number): Value {
  const [debounced, setDebounced] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setDebounced(() => value), afterMs);
    return () => window.clearTimeout(timer);
  }, [value]);
  return debounced;
}
