/** Copies the diagnosis as Markdown, for a ticket. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { announce } from "../a11y";
import { current } from "../diagnosis/current";
import { ticketMarkdown } from "../diagnosis/markdown";
import { saveFile } from "../panels/export";
import { diagnosisLink, recording, state } from "../state";

const SHOWN_MS = 2000;

/** What happened, to be shown: copied, saved where there is no clipboard, or null without a diagnosis. */
export async function copyMarkdown(): Promise<"copied" | "saved" | null> {
  const now = current.peek();
  const found = now?.read.value;
  if (!now || !found) {
    announce("nothing is diagnosed yet: select an incident");
    return null;
  }
  const text = ticketMarkdown(found, { span: now.of, link: diagnosisLink(), utc: state.peek().utc });
  try {
    await navigator.clipboard.writeText(text);
    announce("the diagnosis is copied as Markdown");
    return "copied";
  } catch {
    // No clipboard in an insecure context (plain http, not localhost).
    saveFile(new Blob([text], { type: "text/markdown" }), `exhume-${recording.peek()?.node || "node"}.md`);
    announce("the diagnosis is saved as Markdown");
    return "saved";
  }
}

export function CopyButton(): JSX.Element {
  const [status, setStatus] = useState("");
  const copy = async (): Promise<void> => {
    setStatus((await copyMarkdown()) ?? "");
    window.setTimeout(() => setStatus(""), SHOWN_MS);
  };
  return (
    <button
      type="button"
      data-testid="copy-markdown"
      title="copy the diagnosis as Markdown, for a ticket (c)"
      onClick={() => void copy()}
    >
      {status || "copy as Markdown"}
    </button>
  );
}
