/** Shared by all lanes: their width, and how they request their content. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { isPrinting } from "../print";
import { useResource, type Resource } from "../resource";
import { extent, view } from "../state";
import type { Span } from "../types";
import { planCells, position, type Plan } from "./axis";

const LOW_SCREEN_PX = 1000;
const TALL_PX = 288;
const LOW_PX = 200;

/** Of the part of a lane that has the time axis, in CSS pixels. */
export const plotWidth = signal(0);

/** The greatest height of the heatmap: smaller on low screens, which also show the panels. */
export const tallest = signal(TALL_PX);

/** Measures the element whose width is that of the time axis. */
export function useMeasuredWidth(): { current: HTMLDivElement | null } {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const measure = (): void => {
      if (isPrinting()) return;
      const wide = Math.floor(element.getBoundingClientRect().width);
      // A hidden page has no width: the drawing stays.
      if (wide > 0) plotWidth.value = wide;
      tallest.value = window.innerHeight < LOW_SCREEN_PX ? LOW_PX : TALL_PX;
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    window.addEventListener("resize", measure);
    return () => {
      observer.disconnect();
      window.removeEventListener("resize", measure);
    };
  }, []);
  return place;
}

export const LEAST_COUNTER_MS = 1000;
export const LEAST_SAMPLE_MS = 100;
const MOVING_MS = 60;

/**
 * Values in cells over the time of the view. An answer is kept while the view moves inside of it; `request` identifies
 * everything else that the answer depends on.
 */
export function useCells<Value>(
  request: string | null,
  read: (plan: Plan, signal: AbortSignal) => Promise<Value>,
  options: { least?: number; perPixel?: number; delayMs?: number; over?: Span | null; whole?: Span } = {},
): Resource<Value> {
  const before = useRef<Plan | null>(null);
  const answered = useRef(false);
  const latest = useRef(request);
  const span = options.over === undefined ? view.value : options.over;
  const whole = options.whole ?? extent.value;
  let plan: Plan | null = null;
  if (span && whole && plotWidth.value > 0 && request !== null) {
    const width = Math.floor(plotWidth.value * (options.perPixel ?? 1));
    const kept = latest.current === request ? before.current : null;
    plan = planCells(span, whole, width, kept, options.least ?? LEAST_COUNTER_MS);
  }
  before.current = plan;
  latest.current = request;
  const key = plan && `${request} ${plan.since} ${plan.until} ${plan.cells}`;
  // The first request is sent at once; while the view moves, only the one that it stops at.
  const delayMs = options.delayMs ?? (answered.current ? MOVING_MS : 0);
  const found = useResource(key, (signal) => read(plan as Plan, signal), { delayMs });
  answered.current = found.value !== null;
  return found;
}

/** Where a moment stands on every lane, in CSS pixels. */
export function placeOf(at: number, shown: Span): number {
  return position(at, shown, plotWidth.value);
}
