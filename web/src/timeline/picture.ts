/** A part of the page as one picture: its drawings and its text, placed as on the screen. */
import { moment, zone } from "../format";
import { recording, state, view } from "../state";
import type { Span } from "../types";

const HEAD = 34;
const MARGIN = 12;
/** Controls, which are not part of a picture. */
const TOOLS = ".timeline-tools, .lane-switch, details, .visually-hidden, .placeholder, [role=tooltip]";

export function timelinePicture(): HTMLCanvasElement | null {
  return partPicture(document.querySelector<HTMLElement>("section.timeline"), view.peek());
}

/** The part of the page that shows this time. */
export function partPicture(section: HTMLElement | null, shown: Span | null): HTMLCanvasElement | null {
  if (!section) return null;
  const frame = section.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round((frame.width + 2 * MARGIN) * ratio);
  canvas.height = Math.round((frame.height + HEAD) * ratio);
  const pen = canvas.getContext("2d");
  if (!pen) return null;
  pen.scale(ratio, ratio);
  const page = window.getComputedStyle(document.body);
  pen.fillStyle = page.backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = page.color;
  pen.font = `600 14px ${page.fontFamily}`;
  pen.textBaseline = "middle";
  pen.fillText(heading(shown), MARGIN, HEAD / 2);
  pen.translate(MARGIN - frame.left, HEAD - frame.top);
  for (const each of section.querySelectorAll<HTMLElement>("canvas, i, .box, .lane-plot")) drawElement(pen, each);
  drawText(pen, section);
  return canvas;
}

/** Node and time: a picture is read without the page. */
function heading(shown: Span | null): string {
  const { utc } = state.peek();
  const node = recording.peek()?.node ?? "";
  if (!shown) return node;
  return `${node} · ${moment(shown.since, utc)} – ${moment(shown.until, utc)} ${zone(shown.until, utc)}`;
}

function drawElement(pen: CanvasRenderingContext2D, each: HTMLElement): void {
  const place = each.getBoundingClientRect();
  if (place.width === 0 || place.height === 0 || each.closest(TOOLS)) return;
  if (each instanceof HTMLCanvasElement) {
    pen.drawImage(each, place.left, place.top, place.width, place.height);
    return;
  }
  const style = window.getComputedStyle(each);
  pen.fillStyle = each.classList.contains("gap") ? style.getPropertyValue("--hatch") : style.backgroundColor;
  pen.fillRect(place.left, place.top, place.width, place.height);
  if (each.classList.contains("box")) {
    pen.strokeStyle = style.outlineColor;
    pen.lineWidth = 2;
    pen.strokeRect(place.left - 2, place.top - 2, place.width + 4, place.height + 4);
  } else drawBorders(pen, place, style);
}

/** The sides that something has: bands have two, the keys of lines one. */
function drawBorders(pen: CanvasRenderingContext2D, place: DOMRect, style: CSSStyleDeclaration): void {
  const { left, right, top } = place;
  const sides: [string, string, string, [number, number, number, number]][] = [
    [style.borderTopWidth, style.borderTopColor, style.borderTopStyle, [left, top, right, top]],
    [style.borderLeftWidth, style.borderLeftColor, style.borderLeftStyle, [left, top, left, place.bottom]],
    [style.borderRightWidth, style.borderRightColor, style.borderRightStyle, [right, top, right, place.bottom]],
  ];
  for (const [width, colour, kind, [x0, y0, x1, y1]] of sides) {
    const thick = parseFloat(width);
    if (!(thick > 0) || kind === "none") continue;
    pen.lineWidth = thick;
    pen.strokeStyle = colour;
    pen.setLineDash(kind === "dashed" ? [4, 3] : kind === "dotted" ? [2, 2] : []);
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
  }
  pen.setLineDash([]);
}

/** Word by word, so that lines break where they do on the screen. */
function drawText(pen: CanvasRenderingContext2D, section: HTMLElement): void {
  const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!parent || parent.closest(TOOLS)) continue;
    const style = window.getComputedStyle(parent);
    const inside = parent.getBoundingClientRect();
    pen.save();
    pen.beginPath();
    pen.rect(inside.left, inside.top, inside.width, inside.height);
    pen.clip();
    pen.fillStyle = style.color;
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    for (const word of (node.textContent ?? "").matchAll(/\S+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const place = range.getBoundingClientRect();
      if (place.width > 0) pen.fillText(word[0], place.left, (place.top + place.bottom) / 2);
    }
    pen.restore();
  }
}
