/** Keeps the recording and its incidents up to date: read once, then refreshed by the server's updates. */
import { effect, signal } from "@preact/signals";
import { api } from "./api";
import { errorMessage } from "./resource";
import { coresRequested, extent, recording, warm } from "./state";
import type { Incident, LiveUpdate } from "./types";

/** Why the recording could not be read; null without an error. */
export const trouble = signal<string | null>(null);
export const incidents = signal<Incident[]>([]);
/** The incidents were read. */
export const incidentsKnown = signal(false);

const RETRY_MS = 3_000;
/** Gaps, losses and costs change slowly: they are read again this often while a recording grows. */
const REREAD_MS = 30_000;
/** Causes arrive as the background diagnosis finds them. */
const WAITING_MS = 2_000;

async function readRecording(): Promise<void> {
  try {
    recording.value = await api.recording();
    trouble.value = null;
  } catch (error) {
    trouble.value = errorMessage(error);
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
    trouble.value = errorMessage(error);
    waiting = window.setTimeout(() => void readIncidents(), RETRY_MS);
    return;
  }
  if (incidents.peek().some((incident) => incident.state === "waiting")) {
    waiting = window.setTimeout(() => void readIncidents(), WAITING_MS);
  }
}

function onUpdate(update: LiveUpdate): void {
  const known = recording.peek();
  if (!known) return;
  trouble.value = null;
  const { since, until, live, lost, skipped } = update;
  if (since !== known.since || until !== known.until || live !== known.live || lost !== known.lost) {
    const begins = known.state === "empty" && until > since;
    recording.value = { ...known, since, until, live, lost };
    if (begins || live !== known.live || lost !== known.lost) void readRecording();
  } else if (skipped !== known.skipped.length) void readRecording();
  if (update.incidents !== incidents.peek().length && waiting === null) void readIncidents();
}

export function startLive(): void {
  void readRecording();
  const asked = effect(() => {
    if (recording.value === null || !(coresRequested.value || extent.value === null)) return;
    asked?.();
    void readIncidents();
  });
  const shown = effect(() => {
    if (recording.value === null || !(warm.value || extent.value === null)) return;
    shown?.();
    listen();
  });
  window.setInterval(() => {
    if (recording.peek()?.live && !document.hidden) void readRecording();
  }, REREAD_MS);
}

function listen(): void {
  const source = new EventSource("./api/live");
  source.onmessage = (event: MessageEvent<string>) => onUpdate(JSON.parse(event.data) as LiveUpdate);
  source.onerror = () => {
    // The browser reconnects by itself, but not after an error response.
    if (recording.peek()?.live) trouble.value = "The server does not respond; retrying …";
    if (source.readyState === EventSource.CLOSED) window.setTimeout(listen, RETRY_MS);
  };
  source.onopen = () => {
    if (trouble.peek() !== null) void readRecording();
  };
}
