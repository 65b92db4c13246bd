/** Drags over the ruler and the lines: they select that time on every core. */
import { signal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";
import { view } from "../state";
import type { Span } from "../types";
import { cellsOf } from "./heat";
import { listen } from "./heatpointer";
import { FINE_MS, isShort } from "./slices/model";

/** The counters have a value a second. */
const SECOND_MS = 1000;

/** The time that is being dragged over; null when it is over. Not part of the address. */
export const brushed = signal<Span | null>(null);

/** `ready` changes when the element appears. */
export function useTimeBrush(element: RefObject<HTMLElement | null>, ready: boolean): void {
  useEffect(() => {
    if (!element.current) return undefined;
    return listen({
      element: element.current,
      grid: () => {
        const shown = view.peek();
        return shown && cellsOf(shown, isShort(shown) ? FINE_MS : SECOND_MS);
      },
      rows: () => null,
      onBox: (box) => {
        brushed.value = box;
      },
      onHover: () => undefined,
      // A click means nothing here: it would select a second by accident.
      onClick: () => true,
    });
  }, [ready]);
}
