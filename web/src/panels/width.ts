/** The width of a drawing: on the screen, also when the window changes, and on paper. */
import { useEffect, useState } from "preact/hooks";
import { isPrinting, onPrint } from "../print";

const FIRST_PX = 1000;
const LEAST_PX = 200;

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
