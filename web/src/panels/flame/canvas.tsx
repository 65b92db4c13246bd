/** The canvas of a flame graph: pointer, keyboard and size. What it shows comes from the state. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce } from "../../a11y";
import type { FlameColour } from "../../address";
import { plural } from "../../format";
import { change, hoveredFrame, state } from "../../state";
import { theme } from "../../theme";
import { drawFlame, rowAt, rowTop } from "./draw";
import { hit, indexOf, layOut, neighbour, ROW, type Layout } from "./layout";
import { FrameMenu, zoomTo, type Action, type MenuAt } from "./menu";
import { frameOf, growth, labelOf, nameOf, type FlameModel, type Matches } from "./model";
import { useWidth } from "../width";
import { describe, FrameTip } from "./tip";

/** For benchmarks: the time of the last drawing, and the number of drawings. */
declare global {
  interface HTMLCanvasElement {
    exhumeDrawMs?: number;
    exhumeDrawn?: number;
  }
}

const DIRECTIONS: Record<string, "in" | "out" | "before" | "after"> = { ArrowLeft: "before", ArrowRight: "after" };

/** A tree to draw, and how. */
export interface View {
  model: FlameModel;
  /** The node that fills the width before anything is zoomed into. */
  home: number;
  /** So many rows at the outside are not drawn. */
  top: number;
  /** Flames grow upwards. */
  up: boolean;
  /** Before the description of the whole graph, for screen readers. */
  title: string;
  testid: string;
}

export function FlameCanvas(props: {
  view: View;
  /** The node that fills the width. */
  node: number;
  matches: Matches | null;
  /** The match to go to; `turn` differs each time. */
  target: { node: number; turn: number } | null;
  colour: FlameColour;
  label: string;
  actions: readonly Action[];
}): JSX.Element {
  const { view, node, matches, target, colour, label, actions } = props;
  const { model, home, top, up } = view;
  const { frame, graph } = state.value;
  const canvas = useRef<HTMLCanvasElement>(null);
  const spot = useRef<HTMLDivElement>(null);
  const reached = useRef(0);
  const pixels = useWidth(canvas);
  const layout = useMemo(() => layOut(model, node, pixels, top), [model, node, pixels, top]);
  const [hovered, setHovered] = useState(-1);
  // By frame, not by position: the focus stays on its frame when the graph is zoomed.
  const [chosen, setChosen] = useState(-1);
  const focused = useMemo(() => placeOf(layout, chosen, node), [layout, chosen, node]);
  const [menu, setMenu] = useState<MenuAt | null>(null);
  const marked = useMemo(() => labelOf(model, frame), [model, frame]);
  // Where the keyboard stands, else the function that was clicked.
  const lit = focused >= 0 && layout.node[focused] > 0 ? model.label[layout.node[focused]] : marked;
  const look = { theme: theme.value, colour, up, matches, lit, hovered, focused };

  // Before the browser paints, or prints.
  useLayoutEffect(() => {
    const began = performance.now();
    if (canvas.current) {
      drawFlame(canvas.current, model, layout, look);
      canvas.current.exhumeDrawMs = performance.now() - began;
      canvas.current.exhumeDrawn = (canvas.current.exhumeDrawn ?? 0) + 1;
    }
  }, [model, layout, look.theme, colour, up, matches, lit, hovered, focused]);
  useLayoutEffect(() => setHeight(canvas.current, layout), [layout]);
  useEffect(() => () => void (hoveredFrame.value = null), []);
  useEffect(() => {
    setHovered(-1);
  }, [layout]);
  // Of another graph the numbers are other frames.
  useEffect(() => setChosen((old) => Math.min(old, 0)), [model.flame]);

  // Once for each turn: what is zoomed afterwards stays where it is.
  useEffect(() => {
    if (!target || reached.current === target.turn) return;
    const place = indexOf(layout, target.node);
    if (place < 0) {
      zoomTo(model, target.node, "replace");
      return;
    }
    reached.current = target.turn;
    setChosen(target.node);
    if (!spot.current) return;
    spot.current.style.top = `${rowTop(layout, layout.row[place], up)}px`;
    spot.current.scrollIntoView({ block: "nearest" });
  }, [target, layout]);

  const zoom = (to: number): void => zoomTo(model, to === home ? 0 : to);
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
    } else if (event.key === "Enter") zoom(current);
    else if (event.key === "Backspace") zoom(node === home ? home : model.parent[node]);
    else if (event.key === "Escape" && node !== home) zoom(home);
    else if (event.key === "Escape" && frame) change({ frame: null, graph: graph === "sandwich" ? "stacks" : graph });
    else if (action && focused >= 0) action.run(model, current);
    else if ((event.key === "ContextMenu" || event.key === "m") && focused >= 0) {
      const box = canvas.current!.getBoundingClientRect();
      openMenu(focused, box.left + layout.x[focused], box.top + rowTop(layout, layout.row[focused], up) + ROW);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="flame-drawing">
        <canvas
          ref={canvas}
          class="flame-canvas"
          role="application"
          tabIndex={0}
          aria-roledescription="flame graph"
          aria-label={`${label}. Arrows move between frames, Enter zooms, Backspace zooms out, m opens the menu.`}
          data-testid={view.testid}
          data-frames={layout.count}
          data-root={nameOf(model, node)}
          data-grown={growth(model, node)}
          data-focused={focused >= 0 ? nameOf(model, layout.node[focused]) : ""}
          data-lit={lit < 0 ? "" : model.flame.labels.name[lit]}
          onPointerMove={point}
          onPointerLeave={leave}
          onClick={(event) => {
            const at = place(event);
            if (at < 0) return;
            setChosen(layout.node[at]);
            zoom(layout.node[at]);
          }}
          onContextMenu={(event) => {
            event.preventDefault();
            openMenu(place(event), event.clientX, event.clientY);
          }}
          onKeyDown={onKeys}
          onBlur={() => setChosen(-1)}
          onFocus={() => setChosen((old) => (old < 0 ? node : old))}
        />
        <div class="flame-spot" ref={spot} />
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
  );
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
