/** Processes and containers by CPU time, with their cores. */
import type { JSX } from "preact";
import { DataTable } from "../a11y";
import { api } from "../api";
import { count, number, percent } from "../format";
import { queryString } from "../http";
import { Placeholder, useResource } from "../resource";
import { change } from "../state";
import type { ProcessUse } from "../types";
import type { Panel, PanelProps } from "./panel";
import { noStacksReason, ConfirmLongRange, useLongRange } from "./empty-states";
import { CoreShares, ShareBar } from "./shares";

const LIMIT = 100;
const LONGEST_TITLE = 2000;
const NO_SAMPLES = "No samples here: the cores were idle or offline, or the filter matches nothing.";

function ProcessesBody({ of }: PanelProps): JSX.Element {
  const key = queryString({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters });
  const [long, confirm] = useLongRange(of);
  const read = useResource(long ? null : key, (signal) => api.processes(of, LIMIT, signal));
  const found = read.value;
  const empty = found?.processes.length === 0 && (noStacksReason(of) ?? NO_SAMPLES);
  if (long) return <ConfirmLongRange of={of} onConfirm={confirm} />;
  return (
    <div class="processes" data-testid="processes" aria-busy={read.loading}>
      <Placeholder of={read} what="processes" empty={empty} />
      {found && found.containers.length > 0 && (
        <>
          <h3>Containers</h3>
          <Ranked rows={found.containers} caption="containers by CPU time" containers />
        </>
      )}
      {found && found.processes.length > 0 && (
        <>
          <h3>Processes</h3>
          <Ranked rows={found.processes} caption="processes by CPU time" />
          {found.left_out > 0 && <p class="muted">… and {count(found.left_out)} more with less CPU time</p>}
        </>
      )}
    </div>
  );
}

function Ranked(props: { rows: ProcessUse[]; caption: string; containers?: boolean }): JSX.Element {
  return (
    <DataTable<ProcessUse>
      caption={props.caption}
      rows={props.rows}
      keyOf={(row) => `${row.comm} ${row.pid} ${row.container}`}
      columns={[
        {
          title: props.containers ? "container" : "process",
          cell: (row) => (
            <button
              type="button"
              class="link"
              title="filter by this process or container"
              onClick={() => change(props.containers ? { container: row.container ?? "" } : narrowed(row))}
            >
              <bdi>{row.comm}</bdi>
              {row.pid !== null && <span class="muted"> {row.pid}</span>}
            </button>
          ),
        },
        { title: "share", numeric: true, cell: (row) => percent(row.share) },
        { title: "", cell: (row) => <ShareBar share={row.share} /> },
        { title: "CPU seconds", numeric: true, cell: (row) => number(row.seconds, 2) },
        { title: "cores", cell: (row) => <CoreShares perCpu={row.per_cpu} total={row.seconds} /> },
        { title: props.containers ? "pod or cgroup" : "command line, container", cell: (row) => <Where of={row} /> },
      ]}
    />
  );
}

function narrowed(row: ProcessUse): { comm: string; pid: string } {
  return { comm: row.comm, pid: row.pid === null ? "" : String(row.pid) };
}

function Where({ of }: { of: ProcessUse }): JSX.Element {
  const container = inPod(of) ?? of.container_name ?? of.container?.slice(0, 12);
  return (
    <span class="where">
      {of.cmdline && <code title={of.cmdline.slice(0, LONGEST_TITLE)}>{of.cmdline}</code>}
      {container && (
        <span>
          container <bdi>{container}</bdi>
        </span>
      )}
      {of.pod && (
        <span>
          pod{" "}
          <button
            type="button"
            class="link"
            title="filter by this pod"
            onClick={() => change({ pod: of.pod ?? "" })}
          >
            <bdi>{of.pod_name ?? of.pod}</bdi>
          </button>
          {of.owner && (
            <>
              {" "}
              of <bdi>{of.owner}</bdi>
            </>
          )}
        </span>
      )}
      {!of.cmdline && !container && <span class="muted">{unnamed(of)}</span>}
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

export const processesPanel: Panel = { tab: "processes", title: "Processes", key: "4", Body: ProcessesBody };
