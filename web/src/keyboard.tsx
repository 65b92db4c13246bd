/** Keyboard shortcuts: registered with their meaning; `?` lists them. */
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

const GROUPS = ["Timeline", "Selection", "Diagnosis", "Panels", "Hours", "Nodes", "Page"] as const;

export interface Shortcut {
  /** Values of `KeyboardEvent.key`, with `Shift+` before a named key; any of them works. */
  keys: string[];
  group: (typeof GROUPS)[number];
  title: string;
  /** False leaves the key to the browser. */
  run: (event: KeyboardEvent) => void | boolean;
}

const shortcuts = signal<Shortcut[]>([]);
export const helpOpen = signal(false);

/** Returns a function that removes them. */
export function registerShortcuts(...added: Shortcut[]): () => void {
  shortcuts.value = [...shortcuts.peek(), ...added];
  return () => {
    shortcuts.value = shortcuts.peek().filter((each) => !added.includes(each));
  };
}

/** Shortcuts for the lifetime of a component. */
export function useShortcuts(make: () => Shortcut[]): void {
  useEffect(() => registerShortcuts(...make()), []);
}

export function keyName(event: Pick<KeyboardEvent, "key" | "shiftKey">): string {
  return event.shiftKey && event.key.length > 1 ? `Shift+${event.key}` : event.key;
}

/** Text fields, lists and open dialogs keep their keys. */
function isTaken(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select") ||
      target.closest("dialog[open], [role=menu]") !== null)
  );
}

export function startKeyboard(): void {
  window.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTaken(event.target)) return;
    if (event.key === "Escape" && closePopovers(null)) return;
    const name = keyName(event);
    // The latest registration wins: a panel may take a key over while it is shown.
    const found = shortcuts.peek().findLast((each) => each.keys.includes(name));
    if (found && found.run(event) !== false) event.preventDefault();
  });
  window.addEventListener("pointerdown", (event) => closePopovers(event.target));
}

/** Closes all open popovers but the one that contains this. False where none was open. */
function closePopovers(within: EventTarget | null): boolean {
  const open = [...document.querySelectorAll("details.popover[open], details.export[open]")];
  const others = open.filter((each) => !(within instanceof Node && each.contains(within)));
  for (const each of others) {
    if (each.contains(document.activeElement)) each.querySelector("summary")?.focus();
    each.removeAttribute("open");
  }
  return others.length > 0;
}

const NAMES: Record<string, string> = {
  ArrowLeft: "←",
  ArrowRight: "→",
  ArrowUp: "↑",
  ArrowDown: "↓",
  "Shift+ArrowLeft": "Shift ←",
  "Shift+ArrowRight": "Shift →",
  Escape: "Esc",
  Backspace: "⌫",
  " ": "Space",
};

/** The help that `?` opens: the shortcuts, and what else a page has to say about keys. */
export function KeyboardHelp({ children }: { children: ComponentChildren }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (helpOpen.value && !dialog.current?.open) dialog.current?.showModal();
    if (!helpOpen.value && dialog.current?.open) dialog.current.close();
  }, [helpOpen.value]);
  const close = (): void => {
    helpOpen.value = false;
  };
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={close}>
      <header>
        <h2 id="help-title">Keys</h2>
        <button type="button" class="quiet" onClick={close} aria-label="close">
          ✕
        </button>
      </header>
      <div class="help-groups">
        {GROUPS.filter((group) => shortcuts.value.some((each) => each.group === group)).map((group) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {shortcuts.value
                .filter((each) => each.group === group)
                .map((each) => (
                  <div key={each.title}>
                    <dt>
                      {each.keys.map((key) => (
                        <kbd key={key}>{NAMES[key] ?? key}</kbd>
                      ))}
                    </dt>
                    <dd>{each.title}</dd>
                  </div>
                ))}
            </dl>
          </section>
        ))}
      </div>
      {children}
    </dialog>
  );
}
