/** What the kernel, the units and the containers said in the window. */
import type { JSX } from "preact";
import { DataTable } from "../a11y";
import { api, question } from "../api";
import { count, moment, plural } from "../format";
import { Standby, useResource } from "../resource";
import { moveView, state } from "../state";
import type { NodeEvent } from "../wire";
import type { Panel, PanelProps } from "./panel";

const LIMIT = 500;
const AROUND_MS = 30_000;

function EventsBody({ of }: PanelProps): JSX.Element {
  const key = question({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters });
  const read = useResource(key, (signal) => api.events(of, { limit: LIMIT }, signal));
  const events = read.value?.events ?? [];
  const { utc } = state.value;
  return (
    <>
      <Standby of={read} what="the events" empty={events.length === 0 && "Nothing was logged in this window."} />
      {read.value !== null && read.value.elsewhere > 0 && (
        <p class="muted" data-testid="elsewhere">
          {plural(read.value.elsewhere, "event")} that {read.value.elsewhere === 1 ? "names" : "name"} another core,
          process or container {read.value.elsewhere === 1 ? "is" : "are"} left out.
        </p>
      )}
      {events.length > 0 && (
        <>
          {read.value?.truncated && (
            <p class="muted">
              The first {count(events.length)} of {count(read.value.total)}: select a shorter time to see the rest.
            </p>
          )}
          <DataTable<NodeEvent>
            caption="events of the window"
            rows={events}
            keyOf={(event) => `${event.at} ${event.kind} ${event.text}`}
            columns={[
              {
                title: "time",
                cell: (event) => (
                  <button
                    type="button"
                    class="link"
                    onClick={() => moveView({ since: event.at - AROUND_MS, until: event.at + AROUND_MS }, "push")}
                  >
                    {moment(event.at, utc, true)}
                  </button>
                ),
              },
              { title: "kind", cell: (event) => event.kind },
              { title: "core", numeric: true, cell: (event) => event.cpu ?? "" },
              { title: "what", cell: (event) => event.text },
            ]}
          />
        </>
      )}
    </>
  );
}

export const eventsPanel: Panel = { tab: "events", title: "Events", key: "5", Body: EventsBody };
