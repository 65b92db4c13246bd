/** How wide a drawing is, also when the window changes. */
import { useEffect, useState } from "preact/hooks";

const FIRST_PX = 1000;
const LEAST_PX = 200;

export function useWidth(of: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(FIRST_PX);
  useEffect(() => {
    const element = of.current;
    if (!element) return undefined;
    const measure = (): void => setWidth(Math.max(LEAST_PX, element.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return width;
}
