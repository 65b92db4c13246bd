/** How high the timeline may be: bounds, and steps by key. Pure. */

export const LEAST_PX = 120;
/** The panels below keep at least this much of the window. */
const PANELS_PX = 140;
const STEP_PX = 24;

export function mostHeight(windowPx: number): number {
  return Math.max(LEAST_PX, windowPx - PANELS_PX);
}

export function clampHeight(height: number, windowPx: number): number {
  return Math.min(Math.max(height, LEAST_PX), mostHeight(windowPx));
}

/** The height after a key; null is the default, undefined where the key means nothing. */
export function stepHeight(key: string, height: number, windowPx: number): number | null | undefined {
  switch (key) {
    case "ArrowUp":
      return clampHeight(height - STEP_PX, windowPx);
    case "ArrowDown":
      return clampHeight(height + STEP_PX, windowPx);
    case "Home":
      return LEAST_PX;
    case "End":
      return mostHeight(windowPx);
    case "Enter":
      return null;
    default:
      return undefined;
  }
}
