/** The actions of a frame: by right click, or by the menu key. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { announce } from "../../a11y";
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
}

export function focusOn(model: FlameModel, node: number): void {
  change({ root: pathTo(model, node).map((each) => nameOf(model, each)) });
  announce(node === 0 ? "the whole graph" : `zoomed to ${nameOf(model, node)}`);
}

function hide(model: FlameModel, node: number): void {
  const name = nameOf(model, node);
  if (node === 0 || state.peek().hide.includes(name)) return;
  change({ hide: [...state.peek().hide, name] });
  announce(`${name} and its callees are hidden`);
}

function copyStack(model: FlameModel, node: number): void {
  const text = pathTo(model, node)
    .map((each) => nameOf(model, each))
    .join("\n");
  navigator.clipboard.writeText(text).then(
    () => announce("stack copied"),
    () => announce("the browser does not allow copying"),
  );
}

function paintSeconds(model: FlameModel, node: number): void {
  change({ paint: node === 0 ? null : frameOf(model, node) });
  announce(`the timeline shows when ${nameOf(model, node)} ran`);
}

function filterByFrame(model: FlameModel, node: number): void {
  const frame = frameOf(model, node);
  if (frame.kind === "comm") change({ comm: frame.name, root: [] });
  else change({ stack: `^${frame.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`, root: [] });
}

/** What a flame graph can do without a timeline. */
export const GRAPH_ACTIONS: readonly Action[] = [
  { title: "Zoom to this frame", key: "f", run: focusOn },
  { title: "Hide this frame and its callees", key: "h", run: hide },
  { title: "Copy the stack", key: "c", run: copyStack },
];

export const ACTIONS: readonly Action[] = [
  ...GRAPH_ACTIONS,
  { title: "When did this run?", key: "w", run: paintSeconds },
  { title: "Filter everything by this frame", key: "o", run: filterByFrame },
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
