/** The answer, above the timeline: of the whole recording, or of what is selected. */
import type { JSX } from "preact";
import { state } from "../state";
import { Landing } from "./landing";
import { SelectedAnswer } from "./selected";

export function Answer(): JSX.Element {
  return state.value.s0 === null ? <Landing /> : <SelectedAnswer />;
}
