/** Goes to a time that is typed: that second is selected, and the timeline shows what is around it. */
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { announce } from "../a11y";
import { stamp } from "../format";
import { useShortcuts } from "../keyboard";
import { change, extent, recording, state, view } from "../state";
import { centred } from "./axis";
import { FORMS, parseMoment } from "./moment";

/** A longer view comes closer. */
const MAX_MS = 600_000;
const SECOND_MS = 1000;

export function TimeField(): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<string | null>(null);
  useShortcuts(() => [
    { keys: ["g"], group: "Timeline", title: "go to a time", run: () => field.current?.select() },
  ]);
  const go = (text: string): void => {
    const problem = text.trim() === "" ? null : goTo(text);
    setError(problem);
    if (problem === null) field.current?.blur();
  };
  return (
    <form
      class="go-to"
      onSubmit={(event) => {
        event.preventDefault();
        go(field.current?.value ?? "");
      }}
    >
      <label>
        <span>go to</span>
        <input
          ref={field}
          type="text"
          spellcheck={false}
          autocomplete="off"
          placeholder="03:14:07"
          title={`a time: ${FORMS} (g)`}
          data-testid="go-to"
          aria-describedby="go-to-error"
          aria-invalid={error !== null}
          onInput={() => setError(null)}
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            setError(null);
            field.current?.blur();
          }}
        />
      </label>
      <span id="go-to-error" class="field-error" role="alert">
        {error}
      </span>
    </form>
  );
}

/** Null, or why it goes nowhere. */
function goTo(text: string): string | null {
  const [whole, shown] = [extent.peek(), view.peek()];
  if (!whole || !shown) return null;
  const { utc } = state.peek();
  const live = recording.peek()?.live ?? false;
  const found = parseMoment(text, { now: Date.now(), whole, live, utc });
  if (typeof found === "string") return found;
  const around = centred(found, Math.min(MAX_MS, shown.until - shown.since), whole);
  change({
    since: Math.round(around.since),
    until: Math.round(around.until),
    last: null,
    s0: found,
    s1: Math.min(found + SECOND_MS, Math.ceil(whole.until)),
    cpus: null,
    root: [],
    d0: null,
    d1: null,
  });
  announce(`went to ${stamp(found, utc, whole)}`);
  return null;
}
