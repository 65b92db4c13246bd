/** The header: node, recorded time, losses, and whether the recording is live. */
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { announce } from "./a11y";
import { duration, missingText, moment, number, plural, range } from "./format";
import { lossAmount, lossSummary } from "./losses";
import { helpOpen, useShortcuts, type Shortcut } from "./keyboard";
import { FilterBar } from "./filterbar";
import { trouble } from "./live";
import { analysed, change, extent, following, recording, shareLink, state } from "./state";
import { startShare } from "./terminal";
import { ShareButton, ZoneButton } from "./toolbar";
import type { RecordingInfo, Span } from "./types";

/** The fleet page serves recordings of incidents below itself; the name of the node is in the address. */
const WITHIN_FLEET = /\/node\/([^/]+)\/incident\/[^/]+\/$/.exec(window.location.pathname);

/** The fleet page with this node selected, at the hour in which the recording ends. */
function fleetAddress(): string {
  const end = extent.value?.until;
  return `../../../../#${end ? `at=${Math.floor(end)}&` : ""}node=${WITHIN_FLEET?.[1] ?? ""}`;
}

const TO_FLEET: Shortcut = {
  keys: ["F"],
  group: "Page",
  title: "to the fleet",
  run: () => window.location.assign(fleetAddress()),
};

export function Header(): JSX.Element {
  useShortcuts(() => [
    ...(WITHIN_FLEET ? [TO_FLEET] : []),
    { keys: ["u"], group: "Page", title: "UTC or the viewer's time zone", run: toggleUtc },
    { keys: ["?"], group: "Page", title: "show the keys", run: () => void (helpOpen.value = true) },
  ]);
  const known = recording.value;
  useEffect(() => {
    document.title = titleOf(known?.node ?? "", analysed.value, state.value.utc);
  }, [known?.node, analysed.value, state.value.utc]);
  return (
    <header class="top" role="banner">
      <h1>exhume</h1>
      {WITHIN_FLEET && (
        <a href={fleetAddress()} title="the node among the others (F)">
          fleet
        </a>
      )}
      {known && <Facts of={known} />}
      <div class="top-tools">
        {known && <FilterBar />}
        <ZoneButton utc={state.value.utc} moments={shownMoments()} onToggle={toggleUtc} />
        <ShareButton link={shareLink} onShared={startShare} />
        <button type="button" onClick={() => (helpOpen.value = true)} aria-label="show the keys" title="keys (?)">
          ?
        </button>
      </div>
    </header>
  );
}

/** Of the browser's tab: which node, and what is looked at. */
export function titleOf(node: string, of: { since: number; selected: boolean } | null, utc: boolean): string {
  return [node, of?.selected && moment(of.since, utc), "exhume"].filter(Boolean).join(" · ");
}

function Facts({ of }: { of: RecordingInfo }): JSX.Element {
  const whole = extent.value;
  return (
    <ul class="facts" aria-label="the recording">
      {of.node && (
        <li>
          <strong>{of.node}</strong>
        </li>
      )}
      {Object.entries(of.labels).map(([name, value]) => (
        <li key={name} class="less" title={`label of the node: ${name}`}>
          {name} {value}
        </li>
      ))}
      {of.cores > 0 && <li>{plural(of.cores, "core")}</li>}
      {of.kernel && <li class="less">Linux {of.kernel}</li>}
      <li>{whole ? recordedLabel(whole, of.gaps) : "nothing recorded yet"}</li>
      {whole && (
        <li>
          <Losses of={of} />
        </li>
      )}
      <li>
        <LiveSign of={of} />
      </li>
    </ul>
  );
}

/** The recorded time; with gaps, of the whole time. */
function recordedLabel(whole: Span, gaps: [number, number][]): string {
  const long = whole.until - whole.since;
  const missing = gaps.reduce((sum, [since, until]) => sum + until - since, 0);
  const recorded = `${duration(long - missing)} recorded`;
  return missing > 0 ? `${recorded} of ${duration(long)}` : recorded;
}

function LiveSign({ of }: { of: RecordingInfo }): JSX.Element {
  if (trouble.value !== null) return <span class="warned">○ no answer from the server</span>;
  if (!of.live) return <span class="muted">○ not recording</span>;
  if (following.value) {
    return (
      <span class="live" title="the view follows the recording until you touch it">
        ● live
      </span>
    );
  }
  return (
    <button type="button" class="quiet" onClick={() => change({ since: null, until: null, last: 600_000 })}>
      ● recording: follow it
    </button>
  );
}

/** Losses, gaps and missing sources, behind one figure. */
function Losses({ of }: { of: RecordingInfo }): JSX.Element {
  const { utc } = state.value;
  const clean = of.losses.length + of.gaps.length + of.skipped.length === 0;
  return (
    <details class="popover">
      <summary class={clean ? "" : "warned"}>
        {lossSummary(of.losses)}
        {of.gaps.length > 0 && ` · ${plural(of.gaps.length, "gap")}`}
        {of.skipped.length > 0 && ` · ${plural(of.skipped.length, "file")} not read`}
      </summary>
      <div class="popover-body">
        <h2>This recording</h2>
        <p>
          Stacks at {number(of.rate_hz)} Hz ({of.event_source}), in {plural(of.segments, "segment")}
          {of.cost &&
            `; the recorder takes ${number(of.cost.cpu_percent, 2)} % of one core and ` +
              `${number(of.cost.memory_mb, 0)} MB`}
          .
        </p>
        {clean && <p>Nothing was lost.</p>}
        {of.missing.length > 0 && (
          <ul>
            {of.missing.map((each) => (
              <li key={missingText(each)}>{missingText(each)}</li>
            ))}
          </ul>
        )}
        {of.losses.length > 0 && (
          <ul>
            {of.losses.map((loss) => (
              <li key={`${loss.source} ${loss.kind} ${loss.text}`}>
                <strong>{lossAmount(loss)}</strong> ({loss.source}): {loss.text}
              </li>
            ))}
          </ul>
        )}
        {of.skipped.length > 0 && (
          <ul>
            {of.skipped.map((what) => (
              <li key={what}>could not be read: {what}</li>
            ))}
          </ul>
        )}
        {of.gaps.length > 0 && (
          <ul>
            {of.gaps.slice(0, 20).map(([since, until]) => (
              <li key={since}>
                not recorded: {range(since, until, utc)} ({duration(until - since)})
              </li>
            ))}
          </ul>
        )}
      </div>
    </details>
  );
}

/** The ends of what is analysed. */
function shownMoments(): number[] {
  const { since, until } = analysed.value ?? { since: Date.now(), until: Date.now() };
  return [since, until];
}

function toggleUtc(): void {
  change({ utc: !state.peek().utc }, "replace");
  announce(state.peek().utc ? "times are UTC" : "times are in your zone");
}
