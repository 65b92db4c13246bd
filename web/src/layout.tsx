/**
 * The layout: the timeline stays at the top of the window while the panels scroll below it. A splitter sets how much of
 * the window the timeline may take; on a narrow or low screen everything scrolls.
 */
import { computed, effect, signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { clampHeight, LEAST_PX, mostHeight, stepHeight } from "./pane-height";
import { isPrinting } from "./print";
import { revealTimeline } from "./reveal";
import { state } from "./state";

const KEPT = "timeline-height";

/** The greatest height of the timeline as it was chosen; null is the default. */
const chosen = signal<number | null>(readKept());
const windowHeight = signal(window.innerHeight);
const limit = computed(() => (chosen.value === null ? null : clampHeight(chosen.value, windowHeight.value)));

function readKept(): number | null {
  const kept = Number(window.localStorage.getItem(KEPT));
  return kept >= LEAST_PX ? kept : null;
}

function choose(height: number | null): void {
  chosen.value = height === null ? null : clampHeight(height, window.innerHeight);
  if (chosen.value === null) window.localStorage.removeItem(KEPT);
  else window.localStorage.setItem(KEPT, String(Math.round(chosen.value)));
}

/** Its children, at the top of the window, with the splitter below. */
export function StickyPane({ children }: { children: ComponentChildren }): JSX.Element {
  const pane = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = pane.current;
    if (!element) return undefined;
    const measure = (): void => {
      if (isPrinting()) return;
      windowHeight.value = window.innerHeight;
      // What gets the focus below is not hidden by the timeline.
      document.documentElement.style.setProperty("--pane-height", `${element.offsetHeight}px`);
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    window.addEventListener("resize", measure);
    return () => {
      observer.disconnect();
      window.removeEventListener("resize", measure);
    };
  }, []);
  const style = limit.value === null ? {} : { "--timeline-height": `${limit.value}px` };
  return (
    <div class="sticky-pane" ref={pane} data-testid="pane">
      <div class="pane-content" ref={content} style={style} data-testid="pane-content">
        {children}
      </div>
      <Splitter content={content} />
    </div>
  );
}

function Splitter({ content }: { content: { current: HTMLDivElement | null } }): JSX.Element {
  const height = (): number => content.current?.offsetHeight ?? LEAST_PX;
  const onKeyDown = (event: KeyboardEvent): void => {
    const next = stepHeight(event.key, height(), window.innerHeight);
    if (next === undefined) return;
    event.preventDefault();
    choose(next);
  };
  const onPointerDown = (event: PointerEvent): void => {
    const bar = event.currentTarget as HTMLElement;
    const [from, before] = [event.clientY, height()];
    bar.setPointerCapture(event.pointerId);
    const onMove = (moved: PointerEvent): void => choose(before + moved.clientY - from);
    bar.addEventListener("pointermove", onMove);
    bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", onMove), { once: true });
  };
  return (
    <div
      class="splitter"
      role="separator"
      tabIndex={0}
      aria-orientation="horizontal"
      aria-label="height of the timeline"
      aria-valuemin={LEAST_PX}
      aria-valuemax={mostHeight(windowHeight.value)}
      aria-valuenow={Math.round(limit.value ?? mostHeight(windowHeight.value))}
      title="drag, or ↑ and ↓: height of the timeline; double click, or Enter: as high as it needs"
      data-testid="splitter"
      onKeyDown={onKeyDown}
      onPointerDown={onPointerDown}
      onDblClick={() => choose(null)}
    />
  );
}

/** A frame that is painted on the heatmap is asked for far below it. */
export function startLayout(): void {
  let before = state.peek().paint;
  effect(() => {
    const { paint } = state.value;
    if (paint !== null && paint !== before) window.requestAnimationFrame(revealTimeline);
    before = paint;
  });
}
