/** Notices above the timeline: errors, missing sources, an empty or young recording. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { duration, missingText } from "./format";
import { trouble } from "./live";
import { extent, recording } from "./state";

const YOUNG_MS = 180_000;
/** Missing sources are shown until they are dismissed in this session. */
const DISMISSED = "dismissed-missing";

export function Notices(): JSX.Element {
  const known = recording.value;
  const off = known?.missing.map(missingText).join("\n") ?? "";
  const [dismissed, setDismissed] = useState(() => window.sessionStorage.getItem(DISMISSED));
  const dismiss = (): void => {
    window.sessionStorage.setItem(DISMISSED, off);
    setDismissed(off);
  };
  return (
    <div class="notices">
      {trouble.value !== null && (
        <p class="notice trouble" role="alert">
          {trouble.value}
        </p>
      )}
      {known && dismissed !== off && known.missing.length > 0 && (
        <div class="notice" role="note">
          <ul>
            {known.missing.map((each) => (
              <li key={missingText(each)}>{missingText(each)}</li>
            ))}
          </ul>
          <button type="button" class="quiet" onClick={dismiss} aria-label="dismiss">
            ✕
          </button>
        </div>
      )}
      {known && <Young />}
      {!known && trouble.value === null && <Skeleton />}
    </div>
  );
}

function Young(): JSX.Element | null {
  const known = recording.value;
  const whole = extent.value;
  if (!known) return null;
  const age = whole ? whole.until - whole.since : 0;
  if (!whole) {
    return (
      <section class="welcome">
        <h2>{known.live ? "The recording has just started" : "Nothing is recorded yet"}</h2>
        <p>
          {known.live ? (
            "The first second appears in a moment."
          ) : (
            <>
              Start the recorder: <code>sudo exhume record</code>. The page updates as soon as the first second is
              recorded.
            </>
          )}
        </p>
        <Coming />
        <LabHint />
      </section>
    );
  }
  if (!known.live || age > YOUNG_MS) return null;
  return (
    <section class="welcome" data-testid="young">
      <p>
        Recording for {duration(age)}; each second appears as it is recorded. Incidents are marked automatically; any
        cell below can be selected.
      </p>
      <LabHint />
    </section>
  );
}

/** What the page will show. */
function Coming(): JSX.Element {
  return (
    <ul class="coming" aria-label="what the page will show">
      <li>each second: every core as a row of the timeline, where what is unusual for that core stands out</li>
      <li>stacks: drag over the timeline for a flame graph of that time</li>
      <li>kernel log events, memory cgroups, pressure, reclaim, run-queue wait, throttling</li>
      <li>when a core is starved: an incident with its cause and remedies</li>
    </ul>
  );
}

function LabHint(): JSX.Element {
  return (
    <p class="muted">
      To try it, starve a core in another terminal: <code>sudo exhume lab run zombie-memcgs</code> (
      <code>exhume lab list</code> lists all scenarios).
    </p>
  );
}

/** Empty lanes while the recording is read. */
function Skeleton(): JSX.Element {
  return (
    <div class="skeleton" aria-busy="true" aria-label="reading the recording">
      <p class="muted">reading the recording …</p>
      <i class="short" />
      <i class="tall" />
      <i class="short" />
    </div>
  );
}
