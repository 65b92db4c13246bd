/** The state of the fleet page: all of it is in the address bar, and every action goes through `change`. */
import { LinkedState } from "../link";
import { consistent, parseAddress, printAddress, type FleetState } from "./address";

const link = new LinkedState<FleetState>(parseAddress, printAddress, consistent);

export const { state } = link;

export function change(patch: Partial<FleetState>, how: "push" | "replace" = "push"): void {
  link.change(patch, how);
}

export function startAddress(): void {
  link.start();
}

/** The link that shows a colleague the same view: the newest hour is pinned to what is seen now. */
export function shareLink(at: number | null): string {
  return new URL(link.address({ ...state.peek(), at: state.peek().at ?? at }), window.location.href).href;
}
