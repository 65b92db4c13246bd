/** Who ran: processes and containers, ranked, with their cores. */
import type { JSX } from "preact";
import { DataTable } from "../a11y";
import { api, question } from "../api";
import { count, number, percent } from "../format";
import { Standby, useResource } from "../resource";
import { change } from "../state";
import type { ProcessUse } from "../wire";
import type { Panel, PanelProps } from "./panel";
import { blindWords, Unasked, useUnasked } from "./unasked";

const LIMIT = 100;
const SHOWN_CORES = 6;
const LONGEST_TITLE = 2000;
const NOBODY = "Nobody was seen running here: the cores idled or were offline, or a filter leaves nobody.";

function ProcessesBody({ of }: PanelProps): JSX.Element {
  const key = question({ since: of.since, until: of.until, cpus: of.cpus, ...of.filters });
  const [long, ask] = useUnasked(of);
  const read = useResource(long ? null : key, (signal) => api.processes(of, LIMIT, signal));
  const found = read.value;
  if (long) return <Unasked of={of} onAsk={ask} />;
  return (
    <div class="who-ran" data-testid="processes" aria-busy={read.loading}>
      <Standby of={read} what="who ran" empty={found?.processes.length === 0 && (blindWords(of) ?? NOBODY)} />
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
          {found.left_out > 0 && <p class="muted">… and {count(found.left_out)} more that ran less</p>}
        </>
      )}
    </div>
  );
}

function Ranked(props: { rows: ProcessUse[]; caption: string; containers?: boolean }): JSX.Element {
  const most = Math.max(...props.rows.map((row) => row.share), 1e-9);
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
              title="show only this, everywhere"
              onClick={() => change(props.containers ? { container: row.container ?? "" } : narrowed(row))}
            >
              <bdi>{row.comm}</bdi>
              {row.pid !== null && <span class="muted"> {row.pid}</span>}
            </button>
          ),
        },
        { title: "share", numeric: true, cell: (row) => percent(row.share) },
        { title: "", cell: (row) => <Bar share={row.share / most} /> },
        { title: "CPU seconds", numeric: true, cell: (row) => number(row.seconds, 2) },
        { title: "cores", cell: (row) => <Cores of={row} /> },
        { title: props.containers ? "pod or group" : "command line, container", cell: (row) => <Where of={row} /> },
      ]}
    />
  );
}

/** How long it ran beside the one that ran longest. The colours of states are for states. */
function Bar({ share }: { share: number }): JSX.Element {
  return (
    <i class="bar" aria-hidden="true">
      <i style={{ width: `${Math.max(1, 100 * share)}%` }} />
    </i>
  );
}

function narrowed(row: ProcessUse): { comm: string; pid: string } {
  return { comm: row.comm, pid: row.pid === null ? "" : String(row.pid) };
}

function Cores({ of }: { of: ProcessUse }): JSX.Element {
  const shown = of.per_cpu.slice(0, SHOWN_CORES);
  const left = of.per_cpu.length - shown.length;
  return (
    <span class="core-shares">
      {shown.map(([cpu, seconds]) => (
        <span key={cpu}>
          {cpu}: {percent(of.seconds > 0 ? seconds / of.seconds : 0)}
        </span>
      ))}
      {left > 0 && <span class="muted">and {left} more</span>}
    </span>
  );
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
            title="show only this pod, everywhere"
            onClick={() => change({ pod: of.pod ?? "" })}
          >
            <bdi>{of.pod_name ?? of.pod}</bdi>
          </button>
        </span>
      )}
      {!of.cmdline && !container && <span class="muted">{unnamed(of)}</span>}
    </span>
  );
}

/** What a pod calls its container: the pod's own name stands beside it. */
function inPod({ pod_name, container_name }: ProcessUse): string | null {
  return pod_name && container_name?.startsWith(`${pod_name}/`) ? container_name.slice(pod_name.length + 1) : null;
}

/** Of those without a command line: threads of the kernel have none, and stand in no group of their own. */
function unnamed({ cgroup }: ProcessUse): string {
  if (cgroup === "/") return "no command line and no group, as threads of the kernel";
  return cgroup ? `group ${cgroup}` : "";
}

export const processesPanel: Panel = { tab: "processes", title: "Processes", key: "4", Body: ProcessesBody };
