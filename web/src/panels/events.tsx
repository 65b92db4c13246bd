/** Events of the kernel log, units and containers: searched by text, filtered by kind, repeated lines folded. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { announce, DataTable, VisuallyHidden } from "../a11y";
import { api } from "../api";
import { printCpus } from "../cpulist";
import { count, moment, plural, time } from "../format";
import { queryString } from "../http";
import { useShortcuts } from "../keyboard";
import { showMoment } from "../reveal";
import { Placeholder, useResource } from "../resource";
import { change, state } from "../state";
import { startNote } from "../terminal";
import { GLYPHS } from "../timeline/clusters";
import type { Events, NodeEvent } from "../types";
import { coresOf, foldEvents, type EventFold } from "./event-folds";
import type { Panel, PanelProps } from "./panel";
import { unrecordedReason } from "./empty-states";

const LIMIT = 5000;
/** Rows of the table, and lines of an open fold. */
const [ROWS, LINES] = [500, 200];
/** Kinds that are not in the count of the lane: the recorder's own marks, and what it lost. */
const [INCIDENT, LOST] = ["incident", "lost"];
/** Not every letter that is typed is a request. */
const TYPING_MS = 120;

function EventsBody({ of }: PanelProps): JSX.Element {
  const { find, kinds } = state.value;
  const chosen = { text: find.trim(), kinds: kinds.join(",") };
  const key = queryString({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters, ...chosen });
  const read = useResource(key, (signal) => api.events(of, { ...chosen, limit: LIMIT }, signal), {
    delayMs: find ? TYPING_MS : 0,
  });
  useShortcuts(() => [{ keys: ["e"], group: "Panels", title: "events: fold repeated lines", run: toggleFolds }]);
  const events = read.value?.events ?? [];
  const empty = events.length === 0 && (unrecordedReason(of) ?? emptyReason(read.value));
  return (
    <div data-testid="events" aria-busy={read.loading}>
      {read.value !== null && <Kinds events={read.value} />}
      {read.value !== null && events.length > 0 && <Counted events={read.value} />}
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

function toggleFolds(): void {
  const fold = !state.peek().fold;
  change({ fold }, "replace");
  announce(fold ? "repeated lines are folded" : "every line is listed");
}

/** The same counts as on the timeline, where incidents and losses stand apart. */
function Counted({ events }: { events: Events }): JSX.Element {
  const many = (kind: string): number => events.kinds.find((each) => each.kind === kind)?.count ?? 0;
  const all = events.kinds.reduce((sum, each) => sum + each.count, 0);
  const parts = [plural(all - many(INCIDENT) - many(LOST), "event")];
  if (many(INCIDENT) > 0) parts.push(`${plural(many(INCIDENT), "mark")} of incidents`);
  if (many(LOST) > 0) parts.push(plural(many(LOST), "loss", "losses"));
  return (
    <p class="muted" data-testid="events-counted">
      {parts.join(" · ")}
    </p>
  );
}

function EventTable({ events }: { events: NodeEvent[] }): JSX.Element {
  const { utc, fold } = state.value;
  const folds = useMemo(() => foldEvents(events, fold), [events, fold]);
  return (
    <>
      <DataTable<EventFold>
        caption="events of the window"
        rows={folds.slice(0, ROWS)}
        keyOf={({ key }) => key}
        columns={[
          { title: "time", cell: (each) => <When of={each} utc={utc} /> },
          { title: "kind", cell: ({ first }) => <KindOf event={first} /> },
          { title: "core", numeric: true, cell: (each) => printCpus(coresOf(each)) },
          { title: "what", cell: (each) => <What of={each} utc={utc} /> },
        ]}
      />
      {folds.length > ROWS && (
        <p class="muted">The first {count(ROWS)} rows: search, choose a kind, or select less time.</p>
      )}
    </>
  );
}

function When({ of, utc }: { of: EventFold; utc: boolean }): JSX.Element {
  const { first, last } = of;
  return (
    <>
      <Moment at={first.at} label={moment(first.at, utc, true)} />
      {last !== first && (
        <span class="muted">
          {" "}
          to <Moment at={last.at} label={time(last.at, utc)} />
        </span>
      )}
    </>
  );
}

function Moment({ at, label }: { at: number; label: string }): JSX.Element {
  return (
    <button type="button" class="link moment" onClick={() => showMoment(at)}>
      {label}
    </button>
  );
}

function KindOf({ event }: { event: NodeEvent }): JSX.Element {
  return (
    <span class={`severity ${event.severity}`} title={event.severity}>
      <i aria-hidden="true">{GLYPHS[event.severity] ?? GLYPHS.info}</i> {event.kind}
      <VisuallyHidden>, {event.severity}</VisuallyHidden>
    </span>
  );
}

function What({ of, utc }: { of: EventFold; utc: boolean }): JSX.Element {
  const { events, first } = of;
  const [open, setOpen] = useState(false);
  return (
    <>
      {first.text}
      {events.some((event) => event.marked) && <span class="marked">incident</span>}
      {events.length > 1 && (
        <button
          type="button"
          class="times"
          aria-expanded={open}
          title={open ? "hide the lines" : "lines that differ in numbers and ids alone: show them"}
          onClick={() => setOpen(!open)}
        >
          ×{count(events.length)}
        </button>
      )}
      {open && (
        <ul class="folded">
          {events.slice(0, LINES).map((event, i) => (
            <li key={i}>
              <Moment at={event.at} label={time(event.at, utc, true)} /> {event.text}
            </li>
          ))}
          {events.length > LINES && <li class="muted">and {count(events.length - LINES)} more</li>}
        </ul>
      )}
    </>
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
  const { find, fold } = state.value;
  return (
    <>
      <input
        type="search"
        placeholder="search events ( / )"
        aria-label="search the text of events"
        value={find}
        data-testid="events-search"
        onInput={(event) => change({ find: event.currentTarget.value }, "replace")}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      <button type="button" aria-pressed={fold} onClick={toggleFolds} title="fold repeats (e)" data-testid="fold">
        fold repeats
      </button>
      <button type="button" onClick={startNote} title="a note on the selected moment (m)">
        add a note
      </button>
    </>
  );
}

export const eventsPanel: Panel = { tab: "events", title: "Events", key: "5", Body: EventsBody, Tools: EventsTools };
