/** What the kernel, the units and the containers said in the window: searched by words, chosen by kind. */
import type { JSX } from "preact";
import { DataTable } from "../a11y";
import { api, question } from "../api";
import { count, moment, plural } from "../format";
import { Standby, useResource } from "../resource";
import { change, moveView, state } from "../state";
import type { Events, NodeEvent } from "../wire";
import type { Panel, PanelProps } from "./panel";
import { unrecordedWords } from "./unasked";

const LIMIT = 500;
const AROUND_MS = 30_000;
/** Who types is not asked after at every letter. */
const TYPING_MS = 120;

function EventsBody({ of }: PanelProps): JSX.Element {
  const { find, kinds } = state.value;
  const chosen = { text: find.trim(), kinds: kinds.join(",") };
  const key = question({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters, ...chosen });
  const read = useResource(key, (signal) => api.events(of, { ...chosen, limit: LIMIT }, signal), {
    delayMs: find ? TYPING_MS : 0,
  });
  const events = read.value?.events ?? [];
  const empty = events.length === 0 && (unrecordedWords(of) ?? emptyWords(read.value));
  return (
    <div data-testid="events" aria-busy={read.loading}>
      {read.value !== null && <Kinds told={read.value} />}
      <Standby of={read} what="the events" empty={empty} />
      {read.value !== null && read.value.elsewhere > 0 && (
        <p class="muted" data-testid="elsewhere">
          {plural(read.value.elsewhere, "event")} that {read.value.elsewhere === 1 ? "names" : "name"} another core,
          process or container {read.value.elsewhere === 1 ? "is" : "are"} left out.
        </p>
      )}
      {read.value?.truncated && (
        <p class="muted">
          The first {count(events.length)} of {count(read.value.total)}: search, choose a kind, or select a shorter time
          to see the rest.
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

function emptyWords(told: Events | null): string {
  const { find, kinds } = state.value;
  if (find.trim() === "" && kinds.length === 0) return "Nothing was logged in this window.";
  const others = (told?.kinds ?? []).reduce((sum, each) => sum + each.count, 0);
  const sought = find.trim() === "" ? "" : ` with “${find.trim()}”`;
  if (others > 0) return `No event of this kind${sought} here; of other kinds there are ${count(others)}.`;
  return `No event${sought} here.`;
}

/** The kinds that are there, each with how many; a chosen one stays, so that it can be left again. */
function Kinds({ told }: { told: Events }): JSX.Element | null {
  const { kinds } = state.value;
  const gone = kinds.filter((kind) => !told.kinds.some((each) => each.kind === kind));
  const all = [...told.kinds, ...gone.map((kind) => ({ kind, count: 0 }))];
  if (all.length === 0) return null;
  const sum = told.kinds.reduce((total, each) => total + each.count, 0);
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
      aria-label="search events: words in their text"
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
