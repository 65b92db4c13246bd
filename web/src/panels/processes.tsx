/** CPU time by process, program, container or pod: how much, in the kernel, against the time before, when and where. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { announce, VisuallyHidden } from "../a11y";
import { GROUPINGS, type Grouping } from "../address";
import { api, type Filters } from "../api";
import { count, duration, number, percent, plural } from "../format";
import { queryString } from "../http";
import { useShortcuts } from "../keyboard";
import { Placeholder, useResource } from "../resource";
import { change, recording, state } from "../state";
import type { Processes, ProcessUse } from "../types";
import { noSamplesReason, noStacksReason, ConfirmLongRange, useLongRange } from "./empty-states";
import { LongTable, type LongColumn } from "./long-table";
import type { Panel, PanelProps } from "./panel";
import { changeOf, coreStrip, kernelShare, sortedRows, sparkline, type ProcessSort } from "./process-rows";
import { useNarrow } from "./width";

const LIMIT = 5000;
const LONGEST_TITLE = 2000;
const NAMED_CORES = 6;
/** In pixels; on a phone a row has more lines. */
const [ROW_PX, NARROW_ROW_PX] = [42, 76];
const PLURALS: Partial<Record<Grouping, string>> = { process: "processes" };
/** Names sort from A on, numbers from the most. */
const ASCENDING_FIRST: readonly ProcessSort[] = ["name"];

function ProcessesBody({ of }: PanelProps): JSX.Element {
  const { by } = state.value;
  const key = queryString({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters, by });
  const [long, confirm] = useLongRange(of);
  const read = useResource(long ? null : key, (signal) => api.processes(of, LIMIT, signal, by));
  useShortcuts(() => [{ keys: ["b"], group: "Panels", title: "processes: group by the next", run: groupByNext }]);
  const found = read.value;
  const empty = found?.processes.length === 0 && (noStacksReason(of) ?? noSamplesReason(of));
  if (long) return <ConfirmLongRange of={of} onConfirm={confirm} />;
  return (
    <div class="processes" data-testid="processes" aria-busy={read.loading}>
      <Placeholder of={read} what="processes" empty={empty} />
      {found && found.processes.length > 0 && <Ranked found={found} />}
    </div>
  );
}

function groupByNext(): void {
  const by = GROUPINGS[(GROUPINGS.indexOf(state.peek().by) + 1) % GROUPINGS.length];
  change({ by }, "replace");
  announce(`CPU time by ${by}`);
}

function Ranked({ found }: { found: Processes }): JSX.Element {
  const { sort, ascending } = state.value;
  const narrow = useNarrow();
  const rows = useMemo(() => sortedRows(found, sort, ascending), [found, sort, ascending]);
  const columns = useMemo(() => columnsOf(found), [found]);
  const groups = plural(found.processes.length + found.left_out, found.by, PLURALS[found.by]);
  const onSort = (by: ProcessSort): void =>
    change({ sort: by, ascending: by === sort ? !ascending : ASCENDING_FIRST.includes(by) }, "replace");
  return (
    <>
      <p class="muted processes-summary" data-testid="processes-summary">
        {groups} · {number(found.total_seconds, 1)} s of CPU time
        {found.before_seconds > 0 && ` · change against the ${duration(found.before_seconds * 1000)} before`}
        {found.left_out > 0 && ` · ${count(found.left_out)} with less CPU time are left out`}
      </p>
      <LongTable<ProcessUse, ProcessSort>
        class="process-table"
        caption={`CPU time by ${found.by}`}
        columns={columns}
        rows={rows}
        keyOf={(row) => `${row.comm} ${row.pid} ${row.container} ${row.pod}`}
        rowHeight={narrow ? NARROW_ROW_PX : ROW_PX}
        sorted={{ by: sort, ascending }}
        onSort={onSort}
      />
    </>
  );
}

function columnsOf(found: Processes): LongColumn<ProcessUse, ProcessSort>[] {
  // One scale for all bars: the parts of one whole, up to the largest of them.
  const most = Math.max(...found.processes.map((row) => row.seconds));
  const cores = stripCores(found);
  return [
    { name: "who", title: found.by, sort: "name", cell: (row) => <Who of={row} by={found.by} /> },
    {
      name: "used",
      title: "CPU time",
      sort: "cpu",
      about: `all bars have one scale, which ends at ${percent(most / Math.max(found.total_seconds, 1e-9))}`,
      cell: (row) => <Used of={row} most={most} />,
    },
    {
      name: "kernel",
      title: "kernel",
      sort: "kernel",
      numeric: true,
      about: "the part of its time in kernel code",
      cell: (row) => <Labelled name="kernel">{percent(kernelShare(row))}</Labelled>,
    },
    {
      name: "change",
      title: "change",
      sort: "change",
      numeric: true,
      about: "in cores, against the time before",
      cell: (row) => <Labelled name="change">{changeLabel(row, found)}</Labelled>,
    },
    { name: "course", title: "over time", cell: (row) => <Course of={row} /> },
    { name: "cores", title: "cores", cell: (row) => <Strip of={row} seconds={found.seconds} cores={cores} /> },
  ];
}

/** A value with the name of its column, which a phone has no room for above. */
function Labelled(props: { name: string; children: string }): JSX.Element {
  return (
    <>
      <span class="column-name" aria-hidden="true">
        {props.name}{" "}
      </span>
      {props.children}
    </>
  );
}

function changeLabel(row: ProcessUse, found: Processes): string {
  const grown = changeOf(row, found);
  if (grown === null) return "–";
  if (row.before_seconds === 0) return "new";
  return Math.abs(grown) < 0.005 ? "same" : `${grown > 0 ? "+" : "−"}${number(Math.abs(grown), 2)}`;
}

/** Cores may be numbered with gaps. */
function stripCores(found: Processes): number {
  const last = found.processes.reduce((most, row) => row.per_cpu.reduce((a, [cpu]) => Math.max(a, cpu), most), 0);
  return Math.max(recording.value?.cores ?? 1, last + 1);
}

function Used({ of, most }: { of: ProcessUse; most: number }): JSX.Element {
  const [kernel, user] = [of.kernel_seconds, of.seconds - of.kernel_seconds];
  const wide = (seconds: number): { width: string } => ({ width: `${most > 0 ? (100 * seconds) / most : 0}%` });
  return (
    <span class="split" title={`kernel ${number(kernel, 2)} s, programs ${number(user, 2)} s`}>
      <span class="numeric">{percent(of.share)}</span>
      <i class="split-bar" aria-hidden="true">
        <i class="state-system" style={wide(kernel)} />
        <i class="state-user" style={wide(user)} />
      </i>
      <span class="muted numeric seconds">{number(of.seconds, 2)} s</span>
    </span>
  );
}

function Course({ of }: { of: ProcessUse }): JSX.Element {
  const most = `at most ${number(Math.max(...of.over_time) / 1000, 2)} cores`;
  return (
    <span title={most}>
      <svg class="course" viewBox="0 -0.06 1 1.12" preserveAspectRatio="none" aria-hidden="true">
        <path d={sparkline(of.over_time)} />
      </svg>
      <VisuallyHidden>{most}</VisuallyHidden>
    </span>
  );
}

function Strip(props: { of: ProcessUse; seconds: number; cores: number }): JSX.Element {
  const { of, seconds, cores } = props;
  const on = plural(of.per_cpu.length, "core");
  return (
    <span title={`${on}; most on core ${of.per_cpu[0]?.[0] ?? "?"}`}>
      <svg class="core-strip" viewBox={`0 0 ${cores} 1`} preserveAspectRatio="none" aria-hidden="true">
        {coreStrip(of.per_cpu, seconds).map((path, level) => (
          <path key={level} class={`level-${level}`} d={path} />
        ))}
      </svg>
      <VisuallyHidden>{coresLabel(of)}</VisuallyHidden>
    </span>
  );
}

/** The cores with the most of a row's time; one text, since there are thousands of rows. */
function coresLabel({ per_cpu: perCpu, seconds }: ProcessUse): string {
  const part = (used: number): string => percent(seconds > 0 ? used / seconds : 0);
  const shown = perCpu.slice(0, NAMED_CORES).map(([cpu, used]) => `${cpu}: ${part(used)}`);
  const left = perCpu.length - shown.length;
  return [...shown, ...(left > 0 ? [`and ${left} more`] : [])].join(", ");
}

function Who({ of, by }: { of: ProcessUse; by: Grouping }): JSX.Element {
  const filter = filterOf(of, by);
  const name = <bdi>{of.comm}</bdi>;
  return (
    <>
      <span class="who-name">
        {filter ? (
          <button type="button" class="link" title={`filter by this ${by}`} onClick={() => change(filter)}>
            {name}
          </button>
        ) : (
          name
        )}
        {of.pid !== null && <span class="muted"> {of.pid}</span>}
        {of.processes > 1 && <span class="muted"> {count(of.processes)} processes</span>}
      </span>
      <Where of={of} by={by} />
    </>
  );
}

/** What the filter is set to by a click; null for what is in no container or pod. */
function filterOf(row: ProcessUse, by: Grouping): Partial<Filters> | null {
  if (by === "process") return { comm: row.comm, pid: row.pid === null ? "" : String(row.pid) };
  if (by === "program") return { comm: row.comm };
  const id = row[by];
  return id ? { [by]: id } : null;
}

function Where({ of, by }: { of: ProcessUse; by: Grouping }): JSX.Element {
  const container = by === "container" ? null : (inPod(of) ?? of.container_name ?? of.container?.slice(0, 12));
  const { pod } = of;
  return (
    <span class="where muted">
      {pod && by !== "pod" && (
        <>
          pod{" "}
          <button type="button" class="link" title="filter by this pod" onClick={() => change({ pod })}>
            <bdi>{of.pod_name ?? pod}</bdi>
          </button>{" "}
        </>
      )}
      {pod && of.owner && (
        <>
          of <bdi>{of.owner}</bdi>{" "}
        </>
      )}
      {container && (
        <>
          container <bdi>{container}</bdi>{" "}
        </>
      )}
      {of.cmdline && <code title={of.cmdline.slice(0, LONGEST_TITLE)}>{of.cmdline}</code>}
      {!of.cmdline && !container && unnamed(of)}
    </span>
  );
}

/** The name of a container within its pod, whose name is shown next to it. */
function inPod({ pod_name, container_name }: ProcessUse): string | null {
  return pod_name && container_name?.startsWith(`${pod_name}/`) ? container_name.slice(pod_name.length + 1) : null;
}

/** Shown without a command line, which kernel threads do not have. */
function unnamed({ cgroup }: ProcessUse): string {
  if (cgroup === "/") return "no command line, root cgroup: probably a kernel thread";
  return cgroup ? `cgroup ${cgroup}` : "";
}

function ProcessesTools(): JSX.Element {
  const { by } = state.value;
  return (
    <div class="switch" role="group" aria-label="what CPU time is summed by">
      {GROUPINGS.map((each) => (
        <button
          type="button"
          key={each}
          aria-pressed={by === each}
          title={`by ${each} (b)`}
          data-testid={`by-${each}`}
          onClick={() => change({ by: each })}
        >
          {each}
        </button>
      ))}
    </div>
  );
}

export const processesPanel: Panel = {
  tab: "processes",
  title: "Processes",
  key: "4",
  Body: ProcessesBody,
  Tools: ProcessesTools,
};
