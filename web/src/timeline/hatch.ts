/** What was not recorded is hatched, never the colour of idle. */
import { css, type Theme } from "../theme";

let tile: { key: string; pattern: CanvasPattern } | null = null;

export function hatching(context: CanvasRenderingContext2D, look: Theme, ratio: number): CanvasPattern | null {
  const key = `${look.dark} ${ratio}`;
  if (tile?.key === key) return tile.pattern;
  const size = Math.round(8 * ratio);
  const image = document.createElement("canvas");
  image.width = image.height = size;
  const pen = image.getContext("2d");
  if (!pen) return null;
  pen.fillStyle = css(look.ground);
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = look.hatch;
  pen.lineWidth = ratio;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
  }
  pen.stroke();
  const pattern = context.createPattern(image, "repeat");
  if (pattern) tile = { key, pattern };
  return pattern;
}
