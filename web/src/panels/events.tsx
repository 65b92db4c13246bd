/** Events of the kernel log, units and containers: searched by text, filtered by kind. */
import type { JSX } from "preact";
import { DataTable } from "../a11y";
import { api } from "../api";
import { count, moment, plural } from "../format";
import { queryString } from "../http";
import { Placeholder, useResource } from "../resource";
import { change, moveView, state } from "../state";
import type { Events, NodeEvent } from "../types";
import type { Panel, PanelProps } from "./panel";
import { unrecordedReason } from "./empty-states";

const LIMIT = 500;
const AROUND_MS = 30_000;
/** Not every letter that is typed is a request. */
const TYPING_MS = 120;

function EventsBody({ of }: PanelProps): JSX.Element {
  const { find, kinds } = state.value;
  const chosen = { text: find.trim(), kinds: kinds.join(",") };
  const key = queryString({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters, ...chosen });
  const read = useResource(key, (signal) => api.events(of, { ...chosen, limit: LIMIT }, signal), {
    delayMs: find ? TYPING_MS : 0,
  });
  const events = read.value?.events ?? [];
  const empty = events.length === 0 && (unrecordedReason(of) ?? emptyReason(read.value));
  return (
    <div data-testid="events" aria-busy={read.loading}>
      {read.value !== null && <Kinds events={read.value} />}
      <Placeholder of={read} what="the events" empty={empty} />
      {read.value !== null && read.value.elsewhere > 0 && (
        <p class="muted" data-testid="elsewhere">
          {plural(read.value.elsewhere, "event")} that {read.value.elsewhere === 1 ? "names" : "name"} another core,
          process or container {read.value.elsewhere === 1 ? "is" : "are"} left out.
        </p>
      )}
      {read.value?.truncated && (
        <p class="muted">
          The first {count(events.length)} of {count(read.value.total)}: search, choose a kind, or select less time.
        </p>
      )}
      {events.length > 0 && <EventTable events={events} />}
    </div>
  );
}

function EventTable({ events }: { events: NodeEvent[] }): JSX.Element {
  const { utc } = state.value;
  return (
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
              class="link moment"
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
  );
}

function emptyReason(events: Events | null): string {
  const { find, kinds } = state.value;
  if (find.trim() === "" && kinds.length === 0) return "No events in this time.";
  const others = (events?.kinds ?? []).reduce((sum, each) => sum + each.count, 0);
  const sought = find.trim() === "" ? "" : ` with “${find.trim()}”`;
  if (others > 0) return `No event of this kind${sought}; ${count(others)} of other kinds.`;
  return `No event${sought}.`;
}

/** The kinds with their counts; a chosen one stays listed, so that it can be unchosen. */
function Kinds({ events }: { events: Events }): JSX.Element | null {
  const { kinds } = state.value;
  const gone = kinds.filter((kind) => !events.kinds.some((each) => each.kind === kind));
  const all = [...events.kinds, ...gone.map((kind) => ({ kind, count: 0 }))];
  if (all.length === 0) return null;
  const sum = events.kinds.reduce((total, each) => total + each.count, 0);
  const choose = (next: string[]): void => change({ kinds: next });
  return (
    <div class="kinds" role="group" aria-label="kinds of events" data-testid="kinds">
      <button type="button" aria-pressed={kinds.length === 0} onClick={() => choose([])}>
        every kind <small>{count(sum)}</small>
      </button>
      {all.map(({ kind, count: many }) => {
        const on = kinds.includes(kind);
        return (
          <button
            type="button"
            key={kind}
            aria-pressed={on}
            onClick={() => choose(on ? kinds.filter((each) => each !== kind) : [...kinds, kind])}
          >
            {kind} <small>{count(many)}</small>
          </button>
        );
      })}
    </div>
  );
}

function EventsTools(): JSX.Element {
  return (
    <input
      type="search"
      placeholder="search events ( / )"
      aria-label="search the text of events"
      value={state.value.find}
      data-testid="events-search"
      onInput={(event) => change({ find: event.currentTarget.value }, "replace")}
      onKeyDown={(event) => {
        if (event.key === "Escape") event.currentTarget.blur();
      }}
    />
  );
}

export const eventsPanel: Panel = { tab: "events", title: "Events", key: "5", Body: EventsBody, Tools: EventsTools };
