/** How far a question is that takes long: the server counts the segments that it reads for it. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { count } from "./format";

/** Who reads something, by the signal that can abort it, and the name that its question has on the server. */
const names = new WeakMap<AbortSignal, string>();
const PAGE = Math.random().toString(36).slice(2, 10);
const POLL_MS = 400;
/** What is there sooner needs no number. */
const PATIENCE_MS = 600;
const UNKNOWN = { done: 0, of: 0 };

export interface Reading {
  done: number;
  of: number;
}

/** The name of a question; whoever waits for it finds it by the signal. Equal questions have the same name. */
export function nameQuestion(path: string, signal?: AbortSignal): string {
  let hash = 0x811c9dc5;
  for (let i = 0; i < path.length; i++) hash = Math.imul(hash ^ path.charCodeAt(i), 0x01000193);
  const name = `${PAGE}-${(hash >>> 0).toString(36)}-${path.length}`;
  if (signal) names.set(signal, name);
  return name;
}

/** How far what this signal aborts is (of 0 segments where that is not known); null while it need not be told. */
export function useReading(signal: AbortSignal | null): Reading | null {
  const [reading, setReading] = useState<Reading | null>(null);
  useEffect(() => {
    setReading(null);
    if (signal === null) return undefined;
    let timer = window.setTimeout(look, PATIENCE_MS);
    async function look(): Promise<void> {
      const name = signal && names.get(signal);
      const found = name ? await ask(name) : null;
      if (signal?.aborted || timer === 0) return;
      setReading((old) => found ?? old ?? UNKNOWN);
      timer = window.setTimeout(() => void look(), POLL_MS);
    }
    return () => {
      window.clearTimeout(timer);
      timer = 0;
    };
  }, [signal]);
  return reading;
}

async function ask(name: string): Promise<Reading | null> {
  try {
    const answer = await fetch(`./api/progress?asks=${name}`);
    const told = answer.ok ? ((await answer.json()) as { asks: Record<string, Reading> }) : null;
    return told?.asks[name] ?? null;
  } catch {
    // What is waited for tells that the server is gone.
    return null;
  }
}

export function readingWords({ done, of }: Reading): string {
  return of > 0 ? ` ${count(done)} of ${count(of)} segments` : "";
}

/** Being read: what, how far it is, and a way to stop it. */
export function BeingRead(props: { what: string; signal: AbortSignal | null; onStop?: () => void }): JSX.Element {
  const reading = useReading(props.signal);
  return (
    <div class="standby reading" data-testid="being-read">
      <p>
        reading {props.what} …
        {reading && <span>{readingWords(reading)}</span>}
      </p>
      {reading && reading.of > 0 && (
        <progress max={reading.of} value={reading.done} aria-label={`reading ${props.what}`} />
      )}
      {reading && props.onStop && (
        <button type="button" onClick={props.onStop}>
          stop
        </button>
      )}
    </div>
  );
}
