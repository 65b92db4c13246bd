/** A page's state and its link: the address bar follows the state, and the state follows the address bar. */
import { signal, type Signal } from "@preact/signals";

const WRITE_MS = 250;

/** The state of a page. Components read `state`, and every action of the user goes through `change`. */
export class LinkedState<State extends object> {
  readonly state: Signal<State>;
  private writing: number | null = null;
  /** The address bar follows the state. In a report it does not: a file may be shown where its address is fixed. */
  private linked = false;

  constructor(
    private readonly parse: (hash: string) => State,
    private readonly print: (state: State) => string,
    private readonly consistent: (state: State) => State = (state) => state,
  ) {
    this.state = signal(parse(""));
  }

  /**
   * Change the state. `push` makes a step that undo (and the browser's back button) takes back: selections, jumps,
   * tabs; `replace` is for what moves continuously, such as panning.
   */
  change(patch: Partial<State>, how: "push" | "replace" = "push"): void {
    const next = this.consistent({ ...this.state.peek(), ...patch });
    if (this.print(next) === this.print(this.state.peek())) return;
    if (!this.linked) this.state.value = next;
    else if (how === "push") {
      this.writeAddress();
      this.state.value = next;
      window.history.pushState({ depth: depth() + 1 }, "", this.address(next));
    } else {
      this.state.value = next;
      this.writing ??= window.setTimeout(() => this.writeAddress(), WRITE_MS);
    }
  }

  /** Read the address bar now and whenever it changes (back, forward, a pasted link). */
  start(): void {
    this.linked = true;
    const read = (): void => {
      this.state.value = this.parse(window.location.hash);
    };
    read();
    window.addEventListener("popstate", read);
    window.addEventListener("hashchange", read);
  }

  address(of: State): string {
    return `${window.location.pathname}${window.location.search}${this.print(of)}`;
  }

  private writeAddress(): void {
    if (this.writing === null) return;
    window.clearTimeout(this.writing);
    this.writing = null;
    window.history.replaceState({ depth: depth() }, "", this.address(this.state.peek()));
  }
}

/** Undo the last step of this visit. False where there is none. */
export function undo(): boolean {
  if (depth() === 0) return false;
  window.history.back();
  return true;
}

function depth(): number {
  const kept: unknown = window.history.state;
  return typeof kept === "object" && kept !== null && "depth" in kept ? Number(kept.depth) : 0;
}
