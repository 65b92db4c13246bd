/** What a person should know before looking: trouble, sources that are off, a recording that is young or empty. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { duration } from "./format";
import { trouble } from "./live";
import { extent, recording } from "./state";

const YOUNG_MS = 180_000;
/** What is off is told once a visit. */
const DISMISSED = "told-what-is-off";

export function Notices(): JSX.Element {
  const known = recording.value;
  const off = known?.missing.join("\n") ?? "";
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
            {known.missing.map((what) => (
              <li key={what}>{what}</li>
            ))}
          </ul>
          <button type="button" class="quiet" onClick={dismiss} aria-label="hide what is off">
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
        <h2>{known.live ? "Recording has just begun" : "Nothing is recorded here yet"}</h2>
        <p>
          {known.live ? (
            "The first second appears in a moment."
          ) : (
            <>
              Start the recorder: <code>sudo exhume record</code>. This page shows the first second as soon as it is
              there.
            </>
          )}
        </p>
        <Coming />
        <TryTheLab />
      </section>
    );
  }
  if (!known.live || age > YOUNG_MS) return null;
  return (
    <section class="welcome" data-testid="young">
      <p>
        Recording since {duration(age)}; each second appears as it is recorded. Incidents are marked by themselves;
        until then every cell below can be clicked.
      </p>
      <TryTheLab />
    </section>
  );
}

/** What the page will show, in the order in which it comes. */
function Coming(): JSX.Element {
  return (
    <ul class="coming" aria-label="what the page will show">
      <li>first, each second: every core as a row of the timeline, with the state that took most of it</li>
      <li>with it, what ran there: drag over some of it, and its stacks are a flame graph</li>
      <li>beside it: what the kernel logged, memory cgroups, pressure, reclaim, waiting, throttling</li>
      <li>when a core is starved: a marked incident, with its cause and what to do about it</li>
    </ul>
  );
}

function TryTheLab(): JSX.Element {
  return (
    <p class="muted">
      Nothing wrong on this node? Let the lab starve a core for real, in another terminal:{" "}
      <code>sudo exhume lab run zombie-memcgs</code> (<code>exhume lab list</code> shows the rest).
    </p>
  );
}

/** Lanes without content while the first answer is on its way. */
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
