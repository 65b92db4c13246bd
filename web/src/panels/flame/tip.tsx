/** One frame in words: beside the pointer, and for those who hear. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { count, duration, percent } from "../../format";
import { rowTop } from "./draw";
import { ROW, type Layout } from "./layout";
import { frameOf, growth, type FlameModel } from "./model";

export function describe(model: FlameModel, node: number): string {
  const { flame } = model;
  const frame = frameOf(model, node);
  const share = flame.weight_us ? flame.weight[node] / flame.weight_us : 0;
  const parts = [`${frame.name}: ${percent(share)}`, `${count(flame.samples_of[node])} samples`];
  if (flame.differential) parts.push(points(growth(model, node)));
  return parts.join(", ");
}

/** `+12 points`: a difference of shares. */
export function points(grown: number): string {
  const value = grown * 100;
  if (Math.abs(value) < 0.05) return "unchanged";
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) >= 10 ? 0 : 1)} points`;
}

export function FrameTip(props: { model: FlameModel; layout: Layout; index: number; up: boolean }): JSX.Element {
  const { model, layout, index, up } = props;
  const box = useRef<HTMLDivElement>(null);
  const node = layout.node[index];
  const { flame } = model;
  const frame = frameOf(model, node);
  useEffect(() => {
    const element = box.current;
    const room = element?.parentElement?.clientWidth ?? 0;
    if (!element) return;
    const left = Math.min(layout.x[index] + 12, room - element.offsetWidth - 4);
    const below = rowTop(layout, layout.row[index], up) + ROW + 4;
    const above = below - ROW - 8 - element.offsetHeight;
    element.style.left = `${Math.max(0, left)}px`;
    element.style.top = `${up && above > 0 ? above : below}px`;
  }, [layout, index, up]);
  const kinds: Record<string, string> = {
    comm: "thread",
    all: "",
    kernel: "kernel",
    user: "program",
    jit: "program, compiled at run time",
  };
  const where = [kinds[frame.kind] ?? frame.kind, frame.module].filter(Boolean).join(" · ");
  const share = flame.weight_us ? flame.weight[node] / flame.weight_us : 0;
  return (
    <div class="tip flame-tip" ref={box} data-testid="flame-tip">
      <strong>{frame.name}</strong>
      {where && <span class="muted">{where}</span>}
      <span>
        {percent(share)} · {count(flame.samples_of[node])} samples · {duration(flame.weight[node] / 1000)} of CPU time
      </span>
      {flame.differential && (
        <span>
          {points(growth(model, node))} against {flame.baseline}
        </span>
      )}
    </div>
  );
}
