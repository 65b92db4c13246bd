/** The hour: incidents of each above a slider; keys step, and play. */
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { announce } from "../a11y";
import { moment, plural, zone } from "../format";
import { useShortcuts } from "../keyboard";
import { css, rgb, theme, type Theme } from "../theme";
import { HOUR_MS } from "./address";
import { fleet, histogram, hour, hours, shown } from "./lake";
import { change, state } from "./state";

const HEIGHT = 44;
const PLAY_MS = 500;
const DAY_HOURS = 24;
export const playing = signal(false);

/** `2026-11-15 03:00`. */
export function hourLabel(at: number, utc: boolean): string {
  return moment(at, utc).slice(0, 16);
}

function incidentsAt(at: number): number {
  const known = histogram.value;
  const place = known ? known.hours.indexOf(at) : -1;
  return known && place >= 0 ? known.incidents[place] : 0;
}

function goTo(index: number, how: "push" | "replace" = "replace"): void {
  const all = hours.peek();
  if (all.length === 0) return;
  const at = all[Math.min(all.length - 1, Math.max(0, index))];
  change({ at }, how);
  const found = incidentsAt(at);
  announce(`${hourLabel(at, state.peek().utc)}${histogram.peek() ? `, ${plural(found, "incident")}` : ""}`);
}

function step(by: number): void {
  const now = hour.peek();
  if (now !== null) goTo(hours.peek().indexOf(now) + by);
}

/** The next (1) or previous (-1) hour with incidents. */
function stepIncidents(direction: 1 | -1): void {
  const [known, now] = [histogram.peek(), hour.peek()];
  if (!known || now === null) return;
  const found =
    direction > 0 ? known.hours.find((each) => each > now) : known.hours.findLast((each) => each < now);
  if (found === undefined) announce(direction > 0 ? "no later hour has incidents" : "no earlier hour has incidents");
  else goTo(hours.peek().indexOf(found), "push");
}

function togglePlay(): void {
  playing.value = !playing.peek();
  const all = hours.peek();
  if (playing.peek() && hour.peek() === all.at(-1)) goTo(0);
}

export function Slider(): JSX.Element | null {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  useShortcuts(() => [
    { keys: ["ArrowLeft"], group: "Hours", title: "an hour back", run: () => step(-1) },
    { keys: ["ArrowRight"], group: "Hours", title: "an hour on", run: () => step(1) },
    { keys: ["Shift+ArrowLeft"], group: "Hours", title: "a day back", run: () => step(-DAY_HOURS) },
    { keys: ["Shift+ArrowRight"], group: "Hours", title: "a day on", run: () => step(DAY_HOURS) },
    { keys: ["p"], group: "Hours", title: "previous hour with incidents", run: () => stepIncidents(-1) },
    { keys: ["n"], group: "Hours", title: "next hour with incidents", run: () => stepIncidents(1) },
    { keys: ["Home"], group: "Hours", title: "the first hour", run: () => goTo(0, "push") },
    { keys: ["End"], group: "Hours", title: "the newest hour", run: () => change({ at: null }) },
    { keys: [" "], group: "Hours", title: "play the hours, or stop", run: playKey },
  ]);
  const all = hours.value;
  const now = hour.value;
  const [known, info, look] = [histogram.value, fleet.value, theme.value];
  useEffect(() => {
    if (!canvas.current) return undefined;
    const element = canvas.current;
    const measure = (): void => setWidth(element.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [all.length === 0]);
  useEffect(() => {
    if (canvas.current && width > 0) drawHours(canvas.current, width, all, info?.hours ?? [], now, look);
  }, [width, all, known, info, now, look]);
  useEffect(() => {
    if (!playing.value) return undefined;
    const timer = window.setInterval(() => {
      const index = hours.peek().indexOf(hour.peek() ?? 0);
      // The hour before is drawn: a slow answer holds the film, it does not skip.
      if (shown.peek()?.at !== hour.peek()) return;
      if (index < 0 || index >= hours.peek().length - 1) playing.value = false;
      else goTo(index + 1);
    }, PLAY_MS);
    return () => window.clearInterval(timer);
  }, [playing.value]);
  if (all.length === 0 || now === null) return null;
  const { utc } = state.value;
  const index = all.indexOf(now);
  const found = incidentsAt(now);
  const label = `${hourLabel(now, utc)} ${zone(now, utc)}${known ? `, ${plural(found, "incident")}` : ""}`;
  return (
    <section class="hours" aria-label="hours">
      <div class="hours-line">
        <button type="button" onClick={togglePlay} aria-pressed={playing.value} title="play the hours (Space)">
          {playing.value ? "stop" : "play"}
        </button>
        <p class="hour" data-testid="hour">
          <strong>{hourLabel(now, utc)}</strong> – {hourLabel(now + HOUR_MS, utc).slice(11)} {zone(now, utc)}
          {known && <span class="muted"> · {plural(found, "incident")} began</span>}
        </p>
        <button
          type="button"
          class="quiet"
          aria-disabled={state.value.at === null}
          onClick={() => change({ at: null })}
        >
          newest
        </button>
      </div>
      <div class="hours-plot">
        <canvas
          ref={canvas}
          class="hours-histogram"
          role="img"
          data-testid="histogram"
          data-read={known !== null}
          aria-label={histogramLabel(all, utc)}
          onClick={(event) => {
            const box = event.currentTarget.getBoundingClientRect();
            goTo(Math.floor(((event.clientX - box.left) / box.width) * all.length), "push");
          }}
        />
        <input
          type="range"
          min={0}
          max={all.length - 1}
          step={1}
          value={Math.max(0, index)}
          aria-label="hour"
          aria-valuetext={label}
          data-testid="slider"
          onInput={(event) => goTo(Number(event.currentTarget.value))}
        />
        <p class="hours-ends muted" aria-hidden="true">
          <span>{hourLabel(all[0], utc)}</span>
          <span>{hourLabel(all[all.length - 1], utc)}</span>
        </p>
      </div>
    </section>
  );
}

/** A button that has the focus keeps its space bar. */
function playKey(event: KeyboardEvent): void | boolean {
  if (event.target instanceof HTMLElement && event.target.matches("button, summary, a")) return false;
  togglePlay();
  return undefined;
}

function histogramLabel(all: number[], utc: boolean): string {
  const known = histogram.value;
  const span = `${plural(all.length, "hour")} from ${hourLabel(all[0], utc)}`;
  if (!known) return `${span}; incidents are being counted`;
  const total = known.incidents.reduce((sum, each) => sum + each, 0);
  const most = Math.max(0, ...known.incidents);
  const when = most > 0 ? `; most, ${most}, in ${hourLabel(known.hours[known.incidents.indexOf(most)], utc)}` : "";
  return `${span}: ${plural(total, "incident")}${when}`;
}

function drawHours(
  canvas: HTMLCanvasElement,
  width: number,
  all: number[],
  there: number[],
  now: number | null,
  look: Theme,
): void {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.round(HEIGHT * ratio);
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const { width: w, height: h } = canvas;
  pen.fillStyle = css(look.ground);
  pen.fillRect(0, 0, w, h);
  const known = histogram.peek();
  const counts = new Map(known?.hours.map((at, i) => [at, known.incidents[i]]));
  const most = Math.max(1, ...counts.values());
  const recorded = new Set(there);
  all.forEach((at, i) => {
    const left = Math.floor((i / all.length) * w);
    const right = Math.max(left + 1, Math.floor(((i + 1) / all.length) * w) - (w / all.length > 3 * ratio ? 1 : 0));
    if (at === now) {
      pen.fillStyle = css(rgb(look.accent), 0.28);
      pen.fillRect(left, 0, right - left, h);
    }
    if (!recorded.has(at)) {
      pen.fillStyle = look.hatch;
      pen.fillRect(left, h - 3 * ratio, right - left, 3 * ratio);
      return;
    }
    const tall = Math.sqrt((counts.get(at) ?? 0) / most) * (h - 4 * ratio);
    if (tall <= 0) return;
    pen.fillStyle = at === now ? look.accent : css(look.ink, 0.75);
    pen.fillRect(left, h - Math.max(2 * ratio, tall), right - left, Math.max(2 * ratio, tall));
  });
}
