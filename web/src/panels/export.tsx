/** What is seen, as a file: drawings from the canvas, everything else from the server. */
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { announce } from "../a11y";
import { api, type FlameScope } from "../api";
import { recording, state } from "../state";

const FILES = [
  { format: "svg", title: "SVG, a picture" },
  { format: "html", title: "HTML, a self-contained report" },
  { format: "folded", title: "folded stacks" },
  { format: "pprof", title: "pprof" },
  { format: "speedscope", title: "speedscope" },
] as const;

export function ExportMenu({ scope }: { scope: FlameScope }): JSX.Element {
  const { root: zoomed, hide, graph, up } = state.value;
  // Files have the stacks: in another tree the zoom leads elsewhere.
  const root = graph === "stacks" ? zoomed : [];
  const menu = useRef<HTMLDetailsElement>(null);
  const close = (): void => menu.current?.removeAttribute("open");
  return (
    <details class="export" ref={menu} data-testid="export">
      <summary>export</summary>
      <div class="export-list">
        <button
          type="button"
          onClick={() => {
            savePicture(stacked([...document.querySelectorAll<HTMLCanvasElement>(".panel canvas")]));
            close();
          }}
        >
          PNG, this drawing
        </button>
        {graph !== "stacks" && (
          <p class="muted" data-testid="export-note">
            Files have the whole stacks, not the {graph === "sandwich" ? "sandwich" : "inverted tree"}:
          </p>
        )}
        {FILES.map(({ format, title }) => (
          <a key={format} href={api.exportAddress(format, scope, { root, hide, up })} download onClick={close}>
            {title}
          </a>
        ))}
      </div>
    </details>
  );
}

/** Drawings below each other, as one: a sandwich has two. */
function stacked(drawings: readonly HTMLCanvasElement[]): HTMLCanvasElement | null {
  if (drawings.length <= 1) return drawings[0] ?? null;
  const whole = document.createElement("canvas");
  whole.width = Math.max(...drawings.map((each) => each.width));
  whole.height = drawings.reduce((sum, each) => sum + each.height, 0);
  const pen = whole.getContext("2d");
  let top = 0;
  for (const each of drawings) {
    pen?.drawImage(each, 0, top);
    top += each.height;
  }
  return whole;
}

/** Saves a drawing with the background of the page, so that it is legible wherever it is pasted. */
export function savePicture(canvas: HTMLCanvasElement | null, of = ""): void {
  if (!canvas) {
    announce("no drawing to save");
    return;
  }
  const whole = document.createElement("canvas");
  whole.width = canvas.width;
  whole.height = canvas.height;
  const pen = whole.getContext("2d");
  if (!pen) return;
  pen.fillStyle = window.getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, whole.width, whole.height);
  pen.drawImage(canvas, 0, 0);
  whole.toBlob((blob) => {
    if (blob) saveFile(blob, `exhume-${recording.peek()?.node || "node"}${of && `-${of}`}.png`);
  }, "image/png");
}

export function saveFile(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
