/** The header: the lake, its nodes, and what neither the nodes nor the report show. */
import { createRef, type JSX } from "preact";
import { announce } from "../a11y";
import { duration, plural } from "../format";
import { helpOpen, useShortcuts } from "../keyboard";
import { undo } from "../link";
import { ShareButton, ZoneButton } from "../toolbar";
import { HOUR_MS } from "./address";
import { fleet, hour, hours, loading, report, shown } from "./lake";
import { change, shareLink, state } from "./state";

/** The element itself says whether the list is open: `toggle` is dispatched later than a key or a click elsewhere may
 * follow, so a copy of its state would be stale. */
const blindSpots = createRef<HTMLDetailsElement>();

export function Header(): JSX.Element {
  useShortcuts(() => [
    { keys: ["u"], group: "Page", title: "UTC or the viewer's time zone", run: toggleUtc },
    { keys: ["Backspace"], group: "Page", title: "undo the last step", run: undo },
    { keys: ["b"], group: "Page", title: "blind spots", run: toggleBlindSpots },
    { keys: ["?"], group: "Page", title: "show the keys", run: () => void (helpOpen.value = true) },
  ]);
  const [info, now, all] = [fleet.value, shown.value, hours.value];
  const at = hour.value ?? Date.now();
  return (
    <header class="top" role="banner">
      <h1>exhume fleet</h1>
      {info && (
        <ul class="facts" aria-label="the lake">
          <li>{now ? <strong>{plural(now.names.length, "node")}</strong> : "no nodes"}</li>
          <li class="less">{info.lake}</li>
          <li>{all.length === 0 ? "nothing sent yet" : duration(all.length * HOUR_MS)}</li>
          {now && (
            <li>
              <BlindSpots />
            </li>
          )}
          {loading.value && <li class="muted">reading …</li>}
        </ul>
      )}
      <div class="top-tools">
        <ZoneButton utc={state.value.utc} moments={[at]} onToggle={toggleUtc} />
        <ShareButton link={() => shareLink(hour.peek())} />
        <button type="button" onClick={() => (helpOpen.value = true)} aria-label="show the keys" title="keys (?)">
          ?
        </button>
      </div>
    </header>
  );
}

export function openBlindSpots(): void {
  if (blindSpots.current) blindSpots.current.open = true;
}

function toggleBlindSpots(): void {
  if (blindSpots.current) blindSpots.current.open = !blindSpots.current.open;
}

function toggleUtc(): void {
  change({ utc: !state.peek().utc }, "replace");
  announce(state.peek().utc ? "times are UTC" : "times are in your zone");
}

/** All that is not shown, behind one figure: in the nodes of the hour (silent ones, missing hours, damaged files), and
 * in the report. */
function BlindSpots(): JSX.Element {
  const silent = shown.value?.silent ?? 0;
  const damaged = fleet.value?.damaged ?? [];
  const missing = hours.value.length - (fleet.value?.hours.length ?? 0);
  const computed = report.value?.state === "ready";
  const reported = computed ? (report.value?.blind_spots ?? []) : [];
  const spots = [
    silent > 0 && `${plural(silent, "node")} silent`,
    missing > 0 && `${plural(missing, "hour")} missing`,
    damaged.length > 0 && `${plural(damaged.length, "file")} not read`,
    reported.length > 0 && `${plural(reported.length, "blind spot")} of the report`,
  ].filter((each) => each !== false);
  return (
    <details
      class="popover"
      ref={blindSpots}
      onToggle={(event) => {
        if (event.currentTarget.open) event.currentTarget.querySelector("summary")?.focus();
      }}
    >
      <summary
        class={spots.length === 0 ? "" : "warned"}
        data-testid="blind-spots"
        title="blind spots (b)"
      >
        {spots.length > 0 ? spots.join(" · ") : computed ? "no blind spots" : "no blind spots in this hour"}
      </summary>
      <div class="popover-body">
        <h2>What is not shown</h2>
        <h3>In this view</h3>
        {silent === 0 && missing === 0 && damaged.length === 0 && (
          <p>Nothing: every known node sent summaries in this hour, and every file was read.</p>
        )}
        {silent > 0 && (
          <p>
            {plural(silent, "node")} sent nothing in this hour, though the inventory of this day or the day before has
            them: hatched cells.
          </p>
        )}
        {missing > 0 && <p>{plural(missing, "hour")} between the first and the newest: no summaries of any node.</p>}
        {damaged.length > 0 && (
          <ul>
            {damaged.map((each) => (
              <li key={each.file}>
                could not be read: {each.file}: {each.reason}
              </li>
            ))}
          </ul>
        )}
        <h3>In the report</h3>
        {reported.length === 0 && <p>{computed ? "Nothing." : "It is not there yet."}</p>}
        {reported.length > 0 && (
          <ul>
            {reported.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        )}
      </div>
    </details>
  );
}
