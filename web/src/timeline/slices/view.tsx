/** Who ran, in the heatmap's place: what is read, its legend, its table, and the process that is highlighted. */
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { announce, TableInstead } from "../../a11y";
import { api, NO_FILTERS, type Scope } from "../../api";
import { formatCores, printCpus } from "../../cpulist";
import { count, duration, number, range } from "../../format";
import { useResource, type Resource } from "../../resource";
import { change, extent, filters, recording, select, state, view } from "../../state";
import { css, theme } from "../../theme";
import type { Slices, Span } from "../../types";
import { sliceColour } from "./draw";
import { isShort, LONGEST_VIEW_MS, planSlices, runnersIn, samplesOf, type Runner } from "./model";
import { addTrack } from "./track-list";

const MOVING_MS = 60;
const MOST = 20;

/** The slices of the view; empty while rows show the measure. */
export function useSlices(): Resource<Slices> {
  const { cores } = state.value;
  return useSlicesOf(view.value, extent.value, { cpus: cores ? printCpus(cores) : "", filters: filters.value });
}

/** The slices of a span of a recording that reaches over `whole`; empty as long as rows show the measure. */
export function useSlicesOf(shown: Span | null, whole: Span | null, of: Omit<Scope, keyof Span>): Resource<Slices> {
  const before = useRef<Span | null>(null);
  const answered = useRef(false);
  const last = before.current;
  const plan = shown && whole && state.value.slices && isShort(shown) ? planSlices(shown, whole, last) : null;
  before.current = plan;
  const moving = plan !== null && last !== null && plan.since < last.until && plan.until > last.since;
  const scope = plan && { ...plan, ...of };
  const read = useResource(
    scope && JSON.stringify(scope),
    (signal) => api.slices(scope as NonNullable<typeof scope>, signal),
    // The first request and one after a jump are sent at once; while the view moves, only the one that it stops at.
    { delayMs: answered.current && moving ? MOVING_MS : 0 },
  );
  answered.current = read.value !== null;
  return read;
}

export function toggleSlices(): void {
  if (!isShort(view.peek())) {
    announce(`zoom in to ${LONGEST_VIEW_MS / 1000} seconds or less to see who ran`);
    return;
  }
  change({ slices: !state.peek().slices }, "replace");
  announce(state.peek().slices ? "rows show who ran" : "rows show the measure");
}

/** The drawing in words, for screen readers. */
export function describeSlices(of: Slices, cpus: readonly number[], shown: Span | null): string {
  if (!shown) return "who ran on each core, loading";
  const [most] = runnersIn(of, shown);
  const ran = most ? `; most: ${most.comm} ${most.pid}, ${duration(most.ms)} on ${formatCores(most.cpus)}` : "";
  const when = range(shown.since, shown.until, state.value.utc);
  const keys = "Arrows move from slice to slice, Shift extends, Enter selects";
  return `who ran on cores ${printCpus(cpus)}, ${when}${ran}. ${keys}`;
}

export function SliceLegend({ of }: { of: Slices }): JSX.Element {
  const rate = recording.value?.rate_hz;
  const period = number(of.period_us / 1000, 1);
  return (
    <ul class="legend" aria-label="colours of the slices">
      <li>a hue for each process</li>
      <li>
        <i class="swatch slice-user" />
        user code
      </li>
      <li>
        <i class="swatch slice-system" />
        kernel
      </li>
      <li>
        <i class="swatch slice-softirq" />
        softirq
      </li>
      {of.filtered ? (
        <li>only what matches the filter</li>
      ) : (
        <>
          <li title="no sample, and the counters of the core agree">
            <i class="swatch slice-idle" />
            idle
          </li>
          <li title="no sample, and the counters do not say that the core idled">
            <i class="swatch hatched" />
            not sampled
          </li>
        </>
      )}
      <li class="less">
        {of.period_us > 0 && `a sample stands for ${period} ms${rate ? ` (${rate} Hz)` : ""}: `}
        what ran for less may be missed, and edges are as exact as that
      </li>
    </ul>
  );
}

/** The highlighted process: what it took in view, and what can be done with it. */
export function MarkedProcess({ of, shown }: { of: Slices; shown: Span | null }): JSX.Element | null {
  const { marked } = state.value;
  if (marked === null) return null;
  const found = shown && runnersIn(of, shown).find((each) => each.pid === marked);
  return (
    <p class="marked-process" data-testid="marked">
      <i class="swatch" style={{ background: css(sliceColour(marked, "system", theme.value)) }} />
      {found ? (
        <>
          <strong>
            <bdi>{found.comm}</bdi> {marked}
          </strong>{" "}
          ran {duration(found.ms)} in view on {formatCores(found.cpus, recording.value?.cores)},{" "}
          {duration(found.kernelMs)} of it in the kernel
        </>
      ) : (
        <>process {marked} did not run in view</>
      )}
      <button type="button" onClick={() => filterBy(marked)} title="filter everything by this process">
        filter
      </button>
      <button type="button" onClick={() => addTrack(`pid:${marked}`)} title="a row for each of its threads (a)">
        add its track
      </button>
      {shown && <OwnerTracks pid={marked} shown={shown} />}
      <button
        type="button"
        class="quiet"
        aria-label="stop highlighting this process"
        onClick={() => change({ marked: null }, "replace")}
      >
        ✕
      </button>
    </p>
  );
}

/** Tracks of the container and the pod that a process is in. */
function OwnerTracks({ pid, shown }: { pid: number; shown: Span }): JSX.Element | null {
  const read = useResource(`${pid} ${Math.floor(shown.since / LONGEST_VIEW_MS)}`, (signal) =>
    api.processes({ ...shown, cpus: "", filters: { ...NO_FILTERS, pid: String(pid) } }, 1, signal),
  );
  const known = read.value?.processes[0];
  const owners = known
    ? [
        ["container", known.container_name ?? known.container],
        ["pod", known.pod_name ?? known.pod],
      ]
    : [];
  return (
    <>
      {owners.map(
        ([kind, name]) =>
          name && (
            <button type="button" key={kind} title={name} onClick={() => addTrack(`${kind}:${name}`)}>
              add that of its {kind}
            </button>
          ),
      )}
    </>
  );
}

function filterBy(pid: number): void {
  change({ pid: String(pid), marked: null });
  announce(`filtered by process ${pid}`);
}

/** The drawing as a table: who ran most in view. */
export function SliceTable({ of, shown }: { of: Slices; shown: Span | null }): JSX.Element {
  const runners = shown ? runnersIn(of, shown) : [];
  const { utc } = state.value;
  const left = runners.length - MOST;
  return (
    <TableInstead<Runner>
      summary="who ran in view, as a table"
      caption="processes by their time on cores in view, the longest first"
      note={left > 0 ? `${count(left)} more ran for less` : undefined}
      empty={of.filtered ? "Nothing in view matches the filter." : "No sample was taken in view."}
      rows={runners.slice(0, MOST)}
      keyOf={(runner) => String(runner.pid)}
      columns={[
        {
          title: "process",
          cell: (runner) => (
            <button type="button" class="link" onClick={() => change({ marked: runner.pid }, "replace")}>
              <bdi>{runner.comm}</bdi> {runner.pid}
            </button>
          ),
        },
        { title: "ran", numeric: true, cell: (runner) => duration(runner.ms) },
        { title: "in the kernel", numeric: true, cell: (runner) => duration(runner.kernelMs) },
        { title: "threads", numeric: true, cell: (runner) => count(runner.threads) },
        { title: "cores", cell: (runner) => printCpus(runner.cpus) },
        {
          title: "longest without a pause",
          cell: ({ longest }) => (
            <button type="button" class="link" onClick={() => select(samplesOf(longest), [longest.cpu])}>
              {duration(longest.until - longest.since)} on core {longest.cpu},{" "}
              {range(longest.since, longest.until, utc)}
            </button>
          ),
        },
      ]}
    />
  );
}
