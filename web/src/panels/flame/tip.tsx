/** The description of a frame: as a tooltip, and for screen readers. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { count, duration, percent } from "../../format";
import { rowTop } from "./draw";
import { ROW, type Layout } from "./layout";
import { frameOf, growth, nameOf, shareOf, type FlameModel } from "./model";

/** What shares refer to. */
export function wholeLabel({ flame, now }: FlameModel): string {
  const hidden = now[0] < flame.weight[0] ? " without hidden frames" : "";
  return `${flame.differential ? "the selected time" : "the time"}${hidden}`;
}

export function describe(model: FlameModel, node: number): string {
  const { now, samples, base } = model;
  const share = `${percent(shareOf(now, node))} of ${wholeLabel(model)}`;
  const parts = [`${nameOf(model, node)}: ${share}`, `${count(samples[node])} samples`];
  if (base) parts.push(points(growth(model, node)));
  return parts.join(", ");
}

/** `+12 points`: a difference of shares. */
export function points(grown: number): string {
  const value = grown * 100;
  if (Math.abs(value) < 0.05) return "unchanged";
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) >= 10 ? 0 : 1)} points`;
}

export function FrameTip(props: {
  model: FlameModel;
  /** The node that fills the width. */
  root: number;
  layout: Layout;
  index: number;
  up: boolean;
}): JSX.Element {
  const { model, root, layout, index, up } = props;
  const box = useRef<HTMLDivElement>(null);
  const node = layout.node[index];
  const { flame, now, base, samples } = model;
  const frame = frameOf(model, node);
  const within = root !== 0 && index > layout.ancestors;
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
  return (
    <div class="tip flame-tip" ref={box} data-testid="flame-tip">
      <strong>{frame.name}</strong>
      {where && <span class="muted">{where}</span>}
      <span>
        {percent(shareOf(now, node))} of {wholeLabel(model)}
        {within && `, ${percent(shareOf(now, node, root))} of ${nameOf(model, root)}`}
      </span>
      <span>
        {count(samples[node])} samples · {duration(now[node] / 1000)} of CPU time
      </span>
      {base && (
        <span>
          {points(growth(model, node))} against {flame.baseline}, where it has {percent(shareOf(base, node))}
        </span>
      )}
    </div>
  );
}
