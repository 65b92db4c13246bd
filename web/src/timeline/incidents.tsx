/** The incidents that the recorder marked, with their causes as they become known. */
import type { JSX } from "preact";
import { moveFocus, VisuallyHidden } from "../a11y";
import { formatCores } from "../cpulist";
import { percent, plural, stamp } from "../format";
import { incidents, incidentsKnown } from "../live";
import { extent, recording, state, view } from "../state";
import type { Incident, Span } from "../types";
import { clusters, mostSevere, MARK_PX, markStyle } from "./clusters";
import { Lane } from "./lane";
import { incidentLabel, openIncident } from "./navigation";
import { placeOf, plotWidth } from "./plot";

/** With less room there is no label. */
const LABEL_PX = 60;

export function IncidentLane(): JSX.Element | null {
  const shown = view.value;
  if (!shown) return null;
  const all = incidents.value;
  return (
    <Lane name="incidents" title="incidents" aside={all.length > 0 ? plural(all.length, "incident") : null}>
      <IncidentMarks
        of={all}
        over={shown}
        known={incidentsKnown.value}
        keys=" (keys p and n)"
        testId="incidents"
        onOpen={openIncident}
      />
    </Lane>
  );
}

/** A row of marks over a span of time, those that are too close as one. */
export function IncidentMarks(props: {
  of: Incident[];
  over: Span;
  known: boolean;
  keys: string;
  testId: string;
  onOpen: (incident: Incident) => void;
}): JSX.Element {
  const { of: all, over: shown, known, keys, testId, onOpen } = props;
  const { s0, utc } = state.value;
  const seen = all.filter((each) => each.until > shown.since && each.since < shown.until);
  const placed = seen.map((item) => ({ x: Math.max(0, placeOf(item.since, shown)), item }));
  const before = all.filter((each) => each.until <= shown.since).length;
  const after = all.filter((each) => each.since >= shown.until).length;
  return (
    <div class="marks" data-testid={testId} onKeyDown={moveFocus}>
      {all.length === 0 && known && <span class="lane-empty">none marked so far</span>}
      {all.length > 0 && seen.length === 0 && (
        <span class="lane-empty">
          none in view{before > 0 && `, ${before} before`}
          {after > 0 && `, ${after} after`}
          {keys}
        </span>
      )}
      {clusters(placed, plotWidth.value, MARK_PX).map((cluster, place) => {
        const { items, room, left } = cluster;
        const worst = mostSevere(items);
        const prefix = items.length > 1 ? `${plural(items.length, "incident")}, the worst: ` : "";
        const open = s0 !== null && items.some((each) => each.since === s0);
        return (
          <button
            type="button"
            key={worst.id}
            // One stop of the Tab key for all of them; arrows go on.
            tabIndex={place === 0 ? 0 : -1}
            class={`mark incident ${worst.severity ?? "waiting"} ${open ? "open" : ""} ${left ? "left" : ""}`}
            style={markStyle(cluster, plotWidth.value)}
            title={`${prefix}${incidentLabel(worst)}${worst.summary ? `\n${worst.summary}` : ""}`}
            onClick={() => onOpen(worst)}
          >
            <i aria-hidden="true">▲</i>
            {room > LABEL_PX && <span class="label">{label(worst, items.length, utc)}</span>}
            <VisuallyHidden>
              {" "}
              {prefix}
              {incidentLabel(worst)}
            </VisuallyHidden>
          </button>
        );
      })}
    </div>
  );
}

function label(incident: Incident, among: number, utc: boolean): string {
  const parts = [stamp(incident.since, utc, extent.value), short(incident)];
  if (incident.cpus.length > 0) parts.push(formatCores(incident.cpus, recording.value?.cores));
  if (incident.confidence !== null) parts.push(percent(incident.confidence));
  return `${among > 1 ? `${among}× ` : ""}${parts.join(" · ")}`;
}

function short(incident: Incident): string {
  if (incident.cause) return incident.cause.replaceAll("-", " ");
  return incident.state === "waiting" ? `${incident.text} (diagnosing)` : incident.text;
}
