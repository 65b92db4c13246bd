/**
 * Printing. The page keeps the width of the screen and is scaled to the paper as a whole, so that overlays stay over
 * their canvases; a report is laid out for the paper, and its canvases are drawn again for it.
 */

/** CSS pixels of A4 portrait (210 mm at 96 per inch) without the margins of print.css. */
const PAPER_PX = 700;

let scaled = false;

/** Scale the page to the paper when it is printed. */
export function startPrint(): void {
  scaled = true;
  const measure = (): void => {
    if (isPrinting()) return;
    const { style } = document.body;
    style.setProperty("--screen-width", `${document.documentElement.clientWidth}px`);
    style.setProperty("--print-zoom", String(Math.min(1, PAPER_PX / document.documentElement.clientWidth)));
  };
  document.body.classList.add("fixed-width");
  measure();
  window.addEventListener("resize", measure);
}

/** Whether the page is laid out for paper now: what is measured then is not the width of the screen. */
export function isPrinting(): boolean {
  return window.matchMedia("print").matches;
}

/** Calls back before a report is printed with the width to draw for, and with null afterwards. */
export function onPrint(callback: (width: number | null) => void): () => void {
  const before = (): void => {
    if (!scaled) callback(PAPER_PX);
  };
  const after = (): void => callback(null);
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
  return () => {
    window.removeEventListener("beforeprint", before);
    window.removeEventListener("afterprint", after);
  };
}
