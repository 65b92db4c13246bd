/** Buttons of the header that the pages share: the time zone, and the link to a view. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { announce } from "./a11y";
import { useShortcuts } from "./keyboard";
import { zone } from "./format";

/** `moments` are shown ones: daylight saving may have changed between them, or since. */
export function ZoneButton(props: { utc: boolean; moments: number[]; onToggle: () => void }): JSX.Element {
  const zones = new Set(props.moments.map((at) => zone(at, props.utc)));
  return (
    <button type="button" aria-pressed={props.utc} onClick={props.onToggle} title="UTC or your time zone (u)">
      {[...zones].join(", then ")}
    </button>
  );
}

export function ShareButton(props: { link: () => string; onShared?: () => void }): JSX.Element {
  const [status, setStatus] = useState("");
  const share = async (): Promise<void> => {
    const link = props.link();
    try {
      await navigator.clipboard.writeText(link);
      setStatus("copied");
      announce("the link to this view is copied");
    } catch {
      // No clipboard in an insecure context (plain http, not localhost): the address bar has the same link.
      window.history.replaceState(window.history.state, "", link);
      setStatus("in the address bar");
      announce("the link to this view is in the address bar");
    }
    window.setTimeout(() => setStatus(""), 2000);
    props.onShared?.();
  };
  useShortcuts(() => [
    { keys: ["s"], group: "Page", title: "copy a link that shows this view", run: () => void share() },
  ]);
  return (
    <button type="button" onClick={() => void share()} title="copy a link that shows this view (s)">
      {status || "share"}
    </button>
  );
}
