/** The tooltip of a slice. */
import type { JSX } from "preact";
import { api, NO_FILTERS } from "../../api";
import { duration, plural, range } from "../../format";
import { useResource } from "../../resource";
import { state } from "../../state";
import { samplesOf, STATE_NAMES, type Slice } from "./model";

export interface PointedSlice {
  slice: Slice;
  /** Of the pointer, in the window. */
  x: number;
  y: number;
}

const REST_MS = 70;

export function SliceTooltip({ on }: { on: PointedSlice }): JSX.Element {
  const { slice } = on;
  const { utc } = state.value;
  const flip = on.x > window.innerWidth - 350;
  const place = { left: `${on.x + (flip ? -14 : 14)}px`, top: `${on.y + 16}px` };
  return (
    <div class={`tooltip ${flip ? "flip" : ""}`} style={place} role="tooltip" data-testid="slice-tooltip">
      <strong>core {slice.cpu}</strong> {range(slice.since, slice.until, utc)}{" "}
      <span class="muted">({duration(slice.until - slice.since)})</span>
      {slice.state === null && (
        <p>
          <strong>not sampled</strong>: no sample, and the counters do not say that it idled
        </p>
      )}
      {slice.state === "idle" && (
        <p>
          <strong>idle</strong>: no sample, and the counters agree
        </p>
      )}
      {slice.pid !== null && <Running slice={slice} pid={slice.pid} />}
    </div>
  );
}

function Running({ slice, pid }: { slice: Slice; pid: number }): JSX.Element {
  const scope = { ...samplesOf(slice), cpus: String(slice.cpu) };
  const read = useResource(
    `${pid} ${slice.cpu} ${slice.since} ${slice.until}`,
    (signal) => api.processes({ ...scope, filters: { ...NO_FILTERS, pid: String(pid) } }, 1, signal),
    { delayMs: REST_MS, keep: false },
  );
  const known = read.value?.processes[0];
  const owner = known?.container_name ?? known?.container?.slice(0, 12);
  return (
    <>
      <p>
        <strong>
          <bdi>{slice.comm}</bdi>
        </strong>{" "}
        process {pid}
        {slice.tid !== pid && `, thread ${slice.tid}`}
      </p>
      <p>
        <i class={`swatch state-${slice.state ?? ""}`} />
        {STATE_NAMES[slice.state ?? ""] ?? slice.state}
        {slice.frame && (
          <>
            {" in "}
            <code>{slice.frame}</code>
          </>
        )}
      </p>
      <p class="muted">{plural(slice.samples, "sample")}</p>
      {known?.pod_name && <p class="muted">pod {known.pod_name}</p>}
      {owner && <p class="muted">container {owner}</p>}
      {known?.cmdline && <p class="muted clipped">{known.cmdline}</p>}
    </>
  );
}
