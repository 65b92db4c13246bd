/** The answer, above the timeline: of the whole recording, or of what is selected. */
import type { JSX } from "preact";
import { walkStory } from "../diagnosis/follow";
import { useShortcuts } from "../keyboard";
import { state } from "../state";
import { copyMarkdown } from "./copy";
import { Landing } from "./landing";
import { SelectedAnswer } from "./selected";

export function Answer(): JSX.Element {
  useShortcuts(() => [
    { keys: ["j"], group: "Diagnosis", title: "next step, from the symptom to the remedy", run: () => walkStory(1) },
    { keys: ["k"], group: "Diagnosis", title: "previous step", run: () => walkStory(-1) },
    { keys: ["c"], group: "Diagnosis", title: "copy it as Markdown, for a ticket", run: () => void copyMarkdown() },
  ]);
  return state.value.s0 === null ? <Landing /> : <SelectedAnswer />;
}
