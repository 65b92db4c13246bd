/** The canvas of a flame graph: pointer, keyboard and size. What it shows comes from the state. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce } from "../../a11y";
import type { FlameColour } from "../../address";
import { percent, plural } from "../../format";
import { change, hoveredFrame, state } from "../../state";
import { theme } from "../../theme";
import { drawFlame, rowAt, rowTop } from "./draw";
import { hit, indexOf, layOut, neighbour, ROW, type Layout } from "./layout";
import { focusOn, FrameMenu, type Action, type MenuAt } from "./menu";
import { frameOf, growth, nameOf, nodeAt, search, type FlameModel, type Matches } from "./model";
import { useWidth } from "../width";
import { describe, FrameTip, wholeLabel } from "./tip";

/** For benchmarks: the time of the last drawing, and the number of drawings. */
declare global {
  interface HTMLCanvasElement {
    exhumeDrawMs?: number;
    exhumeDrawn?: number;
  }
}

const DIRECTIONS: Record<string, "in" | "out" | "before" | "after"> = { ArrowLeft: "before", ArrowRight: "after" };

export function FlameCanvas(props: {
  model: FlameModel;
  colour: FlameColour;
  label: string;
  actions: readonly Action[];
}): JSX.Element {
  const { model, colour, label, actions } = props;
  const { root, search: pattern, up } = state.value;
  const canvas = useRef<HTMLCanvasElement>(null);
  const pixels = useWidth(canvas);
  const node = useMemo(() => nodeAt(model, root), [model, root.join("\u0000")]);
  const layout = useMemo(() => layOut(model, node, pixels), [model, node, pixels]);
  const matches = useMemo(() => search(model, pattern, node), [model, pattern, node]);
  const [hovered, setHovered] = useState(-1);
  // By frame, not by position: the focus stays on its frame when the graph is zoomed.
  const [chosen, setChosen] = useState(-1);
  const focused = useMemo(() => placeOf(layout, chosen, node), [layout, chosen, node]);
  const [menu, setMenu] = useState<MenuAt | null>(null);
  const look = { theme: theme.value, colour, up, matches, hovered, focused };

  // Before the browser paints, or prints.
  useLayoutEffect(() => {
    const began = performance.now();
    if (canvas.current) {
      drawFlame(canvas.current, model, layout, look);
      canvas.current.exhumeDrawMs = performance.now() - began;
      canvas.current.exhumeDrawn = (canvas.current.exhumeDrawn ?? 0) + 1;
    }
  }, [model, layout, look.theme, colour, up, matches, hovered, focused]);
  useLayoutEffect(() => setHeight(canvas.current, layout), [layout]);
  useEffect(() => () => void (hoveredFrame.value = null), []);
  useEffect(() => {
    setHovered(-1);
  }, [layout]);
  // Of another graph the numbers are other frames.
  useEffect(() => setChosen((old) => Math.min(old, 0)), [model.flame]);

  const place = (event: MouseEvent): number => {
    const box = canvas.current!.getBoundingClientRect();
    return hit(layout, event.clientX - box.left, rowAt(layout, event.clientY - box.top, up));
  };
  const point = (event: MouseEvent): void => {
    const at = place(event);
    if (at === hovered) return;
    setHovered(at);
    hoveredFrame.value = at > 0 ? frameOf(model, layout.node[at]) : null;
  };
  const leave = (): void => {
    setHovered(-1);
    hoveredFrame.value = null;
  };
  const openMenu = (index: number, x: number, y: number): void => {
    if (index >= 0) setMenu({ node: layout.node[index], x, y });
  };
  const closeMenu = (): void => {
    setMenu(null);
    canvas.current?.focus();
    if (menu) setChosen(menu.node);
  };
  const onKeys = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const where = directionOf(event.key, up);
    const current = focused >= 0 ? layout.node[focused] : node;
    const action = actions.find((each) => each.key === event.key);
    if (where) {
      const next = neighbour(model, layout, focused, where);
      if (next < 0) return;
      setChosen(layout.node[next]);
      announce(describe(model, layout.node[next]));
    } else if (event.key === "Enter") focusOn(model, current);
    else if (event.key === "Backspace") focusOn(model, node === 0 ? 0 : model.flame.parent[node]);
    else if (event.key === "Escape" && root.length > 0) change({ root: [] });
    else if (action && focused >= 0) action.run(model, current);
    else if ((event.key === "ContextMenu" || event.key === "m") && focused >= 0) {
      const box = canvas.current!.getBoundingClientRect();
      openMenu(focused, box.left + layout.x[focused], box.top + rowTop(layout, layout.row[focused], up) + ROW);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <>
      {matches && (
        <p class="flame-found" role="status" data-testid="found">
          {matches.nodes === 0 ? `no frame matches “${pattern}”` : matchSummary(model, matches, node)}
        </p>
      )}
      <div class="flame-drawing">
        <canvas
          ref={canvas}
          class="flame-canvas"
          role="application"
          tabIndex={0}
          aria-roledescription="flame graph"
          aria-label={`${label}. Arrows move between frames, Enter zooms, Backspace zooms out, m opens the menu.`}
          data-testid="flame-canvas"
          data-frames={layout.count}
          data-root={nameOf(model, node)}
          data-grown={growth(model, node)}
          onPointerMove={point}
          onPointerLeave={leave}
          onClick={(event) => {
            const at = place(event);
            if (at >= 0) focusOn(model, layout.node[at]);
          }}
          onContextMenu={(event) => {
            event.preventDefault();
            openMenu(place(event), event.clientX, event.clientY);
          }}
          onKeyDown={onKeys}
          onBlur={() => setChosen(-1)}
          onFocus={() => setChosen((old) => (old < 0 ? node : old))}
        />
        {layout.unseen > 0 && (
          <p class="muted" data-testid="unseen">
            {plural(layout.unseen, "row")} more {up ? "above" : "below"} with frames too thin to see: click a frame to
            zoom in.
          </p>
        )}
        {hovered >= 0 && hovered < layout.count && !menu && (
          <FrameTip model={model} root={node} layout={layout} index={hovered} up={up} />
        )}
        {menu && <FrameMenu model={model} at={menu} actions={actions} onClose={closeMenu} />}
      </div>
    </>
  );
}

/** How much is in frames that match, and of what that is a share. */
function matchSummary(model: FlameModel, matches: Matches, root: number): string {
  const parts = [`${plural(matches.nodes, "matching frame")}: ${percent(matches.share)} of ${wholeLabel(model)}`];
  if (matches.before !== null) parts.push(`${percent(matches.before)} of ${model.flame.baseline}`);
  if (root !== 0) parts.push(`${percent(matches.zoomed)} of ${nameOf(model, root)}`);
  return parts.join("; ");
}

/** Where the keyboard stands: on the chosen frame, or where that is not drawn on the one that fills the width. */
function placeOf(layout: Layout, chosen: number, root: number): number {
  if (chosen < 0) return -1;
  const place = indexOf(layout, chosen);
  return place < 0 ? indexOf(layout, root) : place;
}

/** Along the stack is up and down on the screen, whichever way it grows. */
function directionOf(key: string, up: boolean): "in" | "out" | "before" | "after" | undefined {
  if (key === "ArrowUp") return up ? "in" : "out";
  if (key === "ArrowDown") return up ? "out" : "in";
  return DIRECTIONS[key];
}

function setHeight(canvas: HTMLCanvasElement | null, layout: Layout): void {
  if (canvas) canvas.style.height = `${layout.rows * ROW}px`;
}
