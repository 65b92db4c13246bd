/** The description of a frame: as a tooltip, and for screen readers. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { count, duration, percent, plural } from "../../format";
import { recording } from "../../state";
import { rowTop } from "./draw";
import { ROW, type Layout } from "./layout";
import { frameOf, growth, nameOf, pathTo, shareOf, type FlameModel } from "./model";
import { namelessReason } from "./unknown";

/** What shares refer to. */
export function wholeLabel({ flame, now }: FlameModel): string {
  const hidden = now[0] < flame.weight[0] ? " without hidden frames" : "";
  return `${flame.differential ? "the selected time" : "the time"}${hidden}`;
}

export function describe(model: FlameModel, node: number): string {
  const { samples, base } = model;
  const parts = [`${nameOf(model, node)}: ${shareLabel(model, node)}`, `${count(samples[node])} samples`];
  if (base) parts.push(points(growth(model, node)));
  return parts.join(", ");
}

/** Total and self of a node; in a tree of callers, the time of the function that it leads to. */
function shareLabel(model: FlameModel, node: number): string {
  const { now, own, callers } = model;
  const total = percent(shareOf(now, node));
  if (node === 0) return `${total} of ${wholeLabel(model)}`;
  if (!callers) return `total ${total}, self ${percent(now[0] > 0 ? own[node] / now[0] : 0)} of ${wholeLabel(model)}`;
  const [end] = pathTo(model, node);
  const through = end === node ? "" : ", called through here";
  return `${total} of ${wholeLabel(model)} is in ${nameOf(model, end)}${through}`;
}

/** Total and self of a function over all its places; null where there is only one. */
export function everywhereLabel(model: FlameModel, label: number): string | null {
  const { now, functions } = model;
  if (functions.places[label] < 2) return null;
  return `${plural(functions.places[label], "place")}: ${functionShares(model, label, now[0])}`;
}

/** Total and self of a function, nested calls of itself counted once. */
export function functionShares({ functions }: FlameModel, label: number, whole: number): string {
  const share = (value: number): string => percent(whole > 0 ? value / whole : 0);
  return `total ${share(functions.total[label])}, self ${share(functions.own[label])}`;
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
  const everywhere = everywhereLabel(model, model.label[node]);
  const nameless = namelessReason(frame, recording.value);
  return (
    <div class="tip flame-tip" ref={box} data-testid="flame-tip">
      <strong>{frame.name}</strong>
      {where && <span class="muted">{where}</span>}
      <span>
        {shareLabel(model, node)}
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
      {everywhere && <span class="muted">in {everywhere}</span>}
      {nameless && (
        <span class="nameless">
          {nameless.why} To name it: {nameless.remedy}.
        </span>
      )}
    </div>
  );
}
