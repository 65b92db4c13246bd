/** Keeps what the page knows about the recording fresh: read once, then along with the server's pulse. */
import { effect, signal } from "@preact/signals";
import { api } from "./api";
import { sentence } from "./resource";
import { extent, recording, warm } from "./state";
import type { Incident, Pulse } from "./wire";

/** Why the recording could not be read; null while all is well. */
export const trouble = signal<string | null>(null);
export const incidents = signal<Incident[]>([]);
/** The incidents were asked for, and an answer came. */
export const incidentsKnown = signal(false);

const RETRY_MS = 3_000;
/** Gaps, losses and costs change slowly: they are read again this often while a recording grows. */
const REREAD_MS = 30_000;
/** Causes come as the diagnosis in the background gets to them. */
const WAITING_MS = 2_000;

async function readRecording(): Promise<void> {
  try {
    recording.value = await api.recording();
    trouble.value = null;
  } catch (error) {
    trouble.value = sentence(error);
    window.setTimeout(() => void readRecording(), RETRY_MS);
  }
}

let waiting: number | null = null;

export async function readIncidents(): Promise<void> {
  if (waiting !== null) window.clearTimeout(waiting);
  waiting = null;
  try {
    incidents.value = await api.incidents();
    incidentsKnown.value = true;
  } catch (error) {
    trouble.value = sentence(error);
    waiting = window.setTimeout(() => void readIncidents(), RETRY_MS);
    return;
  }
  if (incidents.peek().some((incident) => incident.state === "waiting")) {
    waiting = window.setTimeout(() => void readIncidents(), WAITING_MS);
  }
}

function onPulse(pulse: Pulse): void {
  const known = recording.peek();
  if (!known) return;
  trouble.value = null;
  const { since, until, live, lost, skipped } = pulse;
  if (since !== known.since || until !== known.until || live !== known.live || lost !== known.lost) {
    const begins = known.state === "empty" && until > since;
    recording.value = { ...known, since, until, live, lost };
    if (begins || live !== known.live || lost !== known.lost) void readRecording();
  } else if (skipped !== known.skipped.length) void readRecording();
  if (pulse.incidents !== incidents.peek().length && waiting === null) void readIncidents();
}

export function startLive(): void {
  void readRecording();
  const stop = effect(() => {
    if (!warm.value && extent.value !== null) return;
    if (recording.value === null) return;
    stop?.();
    void readIncidents();
    listenToPulse();
  });
  window.setInterval(() => {
    if (recording.peek()?.live && !document.hidden) void readRecording();
  }, REREAD_MS);
}

function listenToPulse(): void {
  const source = new EventSource("./api/live");
  source.onmessage = (event: MessageEvent<string>) => onPulse(JSON.parse(event.data) as Pulse);
  source.onerror = () => {
    // The browser connects again by itself; people are told what is going on meanwhile.
    if (recording.peek()?.live) trouble.value = "The server doesn't answer any more; trying again …";
    // But not after an answer that was an error.
    if (source.readyState === EventSource.CLOSED) window.setTimeout(listenToPulse, RETRY_MS);
  };
  source.onopen = () => {
    if (trouble.peek() !== null) void readRecording();
  };
}
