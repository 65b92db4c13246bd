/** What an action changed is on the screen: scrolls to it where it is not. */
import { moveView } from "./state";

/** Has to be the same in layout.css. */
const STICKY = "screen and (min-width: 721px) and (min-height: 601px)";

/** How much of a panel has to be on the screen. */
const SEEN_PX = 200;

/** What an action changed on the timeline is on the screen: scrolls to it where it is not. */
export function revealTimeline(): void {
  const heat = document.querySelector<HTMLElement>(".heat");
  if (heat && !isSeen(heat)) heat.scrollIntoView({ block: "center" });
}

/** Likewise a track that was added: below the cores, which may be higher than the window. */
export function revealTrack(): void {
  [...document.querySelectorAll("[data-testid=track-head]")].at(-1)?.scrollIntoView({ block: "nearest" });
}

/** Likewise the answer, above the timeline. */
export function revealAnswer(): void {
  const answer = document.querySelector<HTMLElement>(".answer");
  if (answer && !isSeen(answer)) window.scrollTo({ top: 0 });
}

/** Likewise the open panel, below the timeline. */
export function revealPanel(): void {
  const tabs = document.querySelector<HTMLElement>(".tabs-line");
  if (!tabs) return;
  const { top, bottom } = tabs.getBoundingClientRect();
  const pane = window.matchMedia(STICKY).matches ? document.querySelector<HTMLElement>(".sticky-pane") : null;
  const ceiling = pane?.offsetHeight ?? 0;
  if (top < ceiling || window.innerHeight - bottom < SEEN_PX) tabs.scrollIntoView({ block: "start" });
}

const MOMENT_MS = 30_000;

/** Shows a moment that a panel names. */
export function showMoment(at: number): void {
  moveView({ since: at - MOMENT_MS, until: at + MOMENT_MS }, "push");
  revealTimeline();
}

function isSeen(element: HTMLElement): boolean {
  const { top, bottom } = element.getBoundingClientRect();
  return top >= 0 && Math.min(bottom, top + SEEN_PX) <= window.innerHeight;
}
