/** Interrupt lines by their count, with the cores that took them. */
import type { JSX } from "preact";
import { DataTable } from "../a11y";
import { isFiltered } from "../address";
import { api } from "../api";
import { count, day, moment, number, percent, plural, time } from "../format";
import { queryString } from "../http";
import { showMoment } from "../reveal";
import { Placeholder, useResource } from "../resource";
import { state } from "../state";
import type { InterruptLine } from "../types";
import { ConfirmLongRange, noSourceReason, unrecordedReason, useLongRange } from "./empty-states";
import type { Panel, PanelProps } from "./panel";
import { CoreShares, ShareBar } from "./shares";

const LIMIT = 100;
/** The source of interrupts, as the recorder names it. */
const SOURCE = "interrupts";
const KERNEL_OWN = "The kernel's own interrupts (timer, rescheduling) are recorded where a core takes 5,000 a second.";

/** What each core took of all lines: core and count, the most first. */
export function countsByCore(lines: InterruptLine[]): [number, number][] {
  const counts = new Map<number, number>();
  for (const line of lines) {
    for (const [cpu, many] of line.per_cpu) counts.set(cpu, (counts.get(cpu) ?? 0) + many);
  }
  return [...counts].sort((one, other) => other[1] - one[1] || one[0] - other[0]);
}

function InterruptsBody({ of }: PanelProps): JSX.Element {
  const key = queryString({ since: of.since, until: of.until, cpus: of.cpus });
  const [long, confirm] = useLongRange(of);
  const read = useResource(long ? null : key, (signal) => api.interrupts(of, of.cpus, LIMIT, signal));
  const found = read.value;
  const empty =
    found?.lines.length === 0 &&
    (unrecordedReason(of) ?? noSourceReason(SOURCE, "No interrupts") ?? "No interrupts of devices in this time.");
  if (long) return <ConfirmLongRange of={of} onConfirm={confirm} />;
  return (
    <div class="interrupts" data-testid="interrupts" aria-busy={read.loading}>
      <Placeholder of={read} what="interrupts" empty={empty} />
      {found && found.lines.length > 0 && (
        <>
          <Summary lines={found.lines} total={found.total} />
          {isFiltered(of.filters) && (
            <p class="muted">Interrupts belong to no process: of the filter only the cores apply.</p>
          )}
          <LineTable lines={found.lines} total={found.total} />
          {found.left_out > 0 && <p class="muted">… and {plural(found.left_out, "line")} with fewer interrupts</p>}
          <p class="muted">{KERNEL_OWN}</p>
        </>
      )}
    </div>
  );
}

function Summary({ lines, total }: { lines: InterruptLine[]; total: number }): JSX.Element {
  const cores = countsByCore(lines);
  return (
    <p class="interrupts-summary" data-testid="interrupts-summary">
      <span>{plural(total, "interrupt")}; by core</span>
      <CoreShares perCpu={cores} total={total} />
    </p>
  );
}

function LineTable({ lines, total }: { lines: InterruptLine[]; total: number }): JSX.Element {
  const { utc } = state.value;
  const times = lines.map((line) => line.worst_at);
  const oneDay = day(Math.min(...times), utc) === day(Math.max(...times), utc);
  const at = oneDay ? time : moment;
  return (
    <DataTable<InterruptLine>
      caption="interrupt lines by their count"
      rows={lines}
      keyOf={(line) => `${line.irq} ${line.name}`}
      columns={[
        {
          title: "interrupt",
          cell: (line) => (
            <span>
              <bdi>{line.name || line.irq}</bdi> <span class="muted">{line.irq}</span>
            </span>
          ),
        },
        { title: "share", numeric: true, cell: (line) => percent(line.count / total) },
        { title: "", cell: (line) => <ShareBar share={line.count / lines[0].count} /> },
        { title: "per second", numeric: true, cell: (line) => number(line.per_second) },
        { title: "count", numeric: true, cell: (line) => count(line.count) },
        {
          title: "most in one read",
          numeric: true,
          cell: (line) => (
            <span>
              {count(line.worst)} at{" "}
              <button type="button" class="link moment" onClick={() => showMoment(line.worst_at)}>
                {at(line.worst_at, utc)}
              </button>
            </span>
          ),
        },
        { title: "cores", cell: (line) => <CoreShares perCpu={line.per_cpu} total={line.count} /> },
        { title: "device", cell: (line) => <Device of={line} /> },
      ]}
    />
  );
}

/** The NIC queue, and the cores that its interrupts may go to. */
function Device({ of }: { of: InterruptLine }): JSX.Element | null {
  if (of.device === null) return null;
  return (
    <span>
      <bdi>{of.device}</bdi>
      {of.queue !== null && ` queue ${of.queue}`}
      {of.affinity !== null && <span class="muted">, affinity {of.affinity}</span>}
    </span>
  );
}

export const interruptsPanel: Panel = { tab: "interrupts", title: "Interrupts", key: "7", Body: InterruptsBody };
