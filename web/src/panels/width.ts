/** The width of a drawing: on the screen, also when the window changes, and on paper. */
import { useEffect, useState } from "preact/hooks";
import { isPrinting, onPrint } from "../print";

const FIRST_PX = 1000;
const LEAST_PX = 200;
const NARROW = "screen and (max-width: 720px)";

export function useWidth(of: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(FIRST_PX);
  useEffect(() => {
    const element = of.current;
    if (!element) return undefined;
    const measure = (): void => {
      if (!isPrinting()) setWidth(Math.max(LEAST_PX, element.clientWidth));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    const stop = onPrint((paper) => (paper === null ? measure() : setWidth(paper)));
    return () => {
      observer.disconnect();
      stop();
    };
  }, []);
  return width;
}

/** Whether there is room for one column only, as on a phone: the same bound as in the styles. */
export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => window.matchMedia(NARROW).matches);
  useEffect(() => {
    const query = window.matchMedia(NARROW);
    const measure = (): void => setNarrow(query.matches);
    query.addEventListener("change", measure);
    return () => query.removeEventListener("change", measure);
  }, []);
  return narrow;
}
