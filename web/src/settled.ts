/** A value once it has stopped changing: for what is too dear to follow every frame. */
import { useEffect, useState } from "preact/hooks";

export function useSettled<Value>(value: Value, afterMs: number): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(() => value), afterMs);
    return () => window.clearTimeout(timer);
  }, [value]);
  return settled;
}
