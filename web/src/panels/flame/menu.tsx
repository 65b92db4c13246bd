/** The actions of a frame: by right click, or by the menu key. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { announce } from "../../a11y";
import type { Graph } from "../../address";
import type { FrameName } from "../../api";
import { change, state } from "../../state";
import { frameOf, nameOf, pathTo, type FlameModel } from "./model";

export interface MenuAt {
  node: number;
  x: number;
  y: number;
}

export interface Action {
  title: string;
  key: string;
  run: (model: FlameModel, node: number) => void;
  /** The same for a function wherever it is called: offered next to its name. */
  ofFunction?: (frame: FrameName) => void;
}

/** Fill the width with a frame. */
export function zoomTo(model: FlameModel, node: number, how: "push" | "replace" = "push"): void {
  const path = pathTo(model, node).map((each) => nameOf(model, each));
  // The function of a sandwich stays.
  const marked = node === 0 || state.peek().graph === "sandwich" ? {} : { frame: frameOf(model, node) };
  change({ ...(model.callers ? { callerRoot: path } : { root: path }), ...marked }, how);
  announce(node === 0 ? "the whole graph" : `zoomed to ${nameOf(model, node)}`);
}

export function showGraph(graph: Graph): void {
  if (state.peek().graph === graph) return;
  change({ graph, root: [], callerRoot: [] });
  announce(GRAPH_TITLES[graph]);
}

export const GRAPH_TITLES: Record<Graph, string> = {
  stacks: "stacks, from the thread to what it called",
  inverted: "inverted: functions by self time, and what called them",
  sandwich: "the callers and callees of one function",
};

function showSandwich(frame: FrameName): void {
  change({ graph: "sandwich", frame, root: [], callerRoot: [] });
  announce(`callers and callees of ${frame.name}`);
}

function highlight(frame: FrameName): void {
  change({ frame });
  announce(`all places of ${frame.name} are outlined`);
}

function hide(model: FlameModel, node: number): void {
  const name = nameOf(model, node);
  if (node === 0 || state.peek().hide.includes(name)) return;
  change({ hide: [...state.peek().hide, name] });
  announce(`${name} and its callees are hidden`);
}

/** Outermost first, whichever way the tree goes. */
export function stackOf(model: FlameModel, node: number): string[] {
  const names = pathTo(model, node).map((each) => nameOf(model, each));
  return model.callers ? names.reverse() : names;
}

function copyStack(model: FlameModel, node: number): void {
  navigator.clipboard.writeText(stackOf(model, node).join("\n")).then(
    () => announce("stack copied"),
    () => announce("the browser does not allow copying"),
  );
}

function paintSeconds(frame: FrameName): void {
  change({ paint: frame });
  announce(`the timeline shows when ${frame.name} ran`);
  // It may be scrolled away: nothing would seem to happen.
  document.querySelector("[data-testid=heatmap]")?.scrollIntoView({ block: "nearest" });
}

function filterByFrame(frame: FrameName): void {
  const stack = `^${frame.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`;
  change({ ...(frame.kind === "comm" ? { comm: frame.name } : { stack }), root: [], callerRoot: [] });
}

/** An action that is about the function of a frame, not about its place; the whole is no function. */
function aboutFunction(title: string, key: string, act: (frame: FrameName) => void): Action {
  return { title, key, run: (model, node) => node > 0 && act(frameOf(model, node)), ofFunction: act };
}

/** What a flame graph can do without a timeline. */
export const GRAPH_ACTIONS: readonly Action[] = [
  { title: "Zoom to this frame", key: "f", run: (model, node) => zoomTo(model, node) },
  aboutFunction("Callers and callees", "s", showSandwich),
  { ...aboutFunction("Outline all its places", "e", highlight), ofFunction: undefined },
  { title: "Hide this frame and its callees", key: "h", run: hide },
  { title: "Copy the stack", key: "c", run: copyStack },
  { title: "Show stacks", key: "t", run: () => showGraph("stacks") },
  { title: "Show the inverted tree", key: "i", run: () => showGraph("inverted") },
];

export const ACTIONS: readonly Action[] = [
  ...GRAPH_ACTIONS.slice(0, 3),
  aboutFunction("When did this run?", "w", paintSeconds),
  aboutFunction("Filter everything by this frame", "o", filterByFrame),
  ...GRAPH_ACTIONS.slice(3),
];

export function FrameMenu(props: {
  model: FlameModel;
  at: MenuAt;
  actions: readonly Action[];
  onClose: () => void;
}): JSX.Element {
  const { model, at, actions, onClose } = props;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    // Set on the element: the Content-Security-Policy allows no inline style.
    element.style.left = `${Math.max(4, Math.min(at.x, window.innerWidth - element.offsetWidth - 8))}px`;
    element.style.top = `${Math.max(4, Math.min(at.y, window.innerHeight - element.offsetHeight - 8))}px`;
    element.querySelector<HTMLButtonElement>("button")?.focus();
    const away = (event: Event): void => {
      if (!element.contains(event.target as Node)) onClose();
    };
    window.addEventListener("pointerdown", away);
    return () => window.removeEventListener("pointerdown", away);
  }, [at]);
  const onKeys = (event: KeyboardEvent): void => {
    const items = Array.from(box.current?.querySelectorAll("button") ?? []);
    const here = items.indexOf(document.activeElement as HTMLButtonElement);
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) items[(here + step + items.length) % items.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") onClose();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div
      class="frame-menu"
      role="menu"
      aria-label={`actions for ${nameOf(model, at.node)}`}
      ref={box}
      onKeyDown={onKeys}
    >
      <p class="frame-menu-name">{nameOf(model, at.node)}</p>
      {actions.map((action) => (
        <button
          type="button"
          role="menuitem"
          key={action.title}
          onClick={() => {
            action.run(model, at.node);
            onClose();
          }}
        >
          {action.title} <kbd>{action.key}</kbd>
        </button>
      ))}
    </div>
  );
}
