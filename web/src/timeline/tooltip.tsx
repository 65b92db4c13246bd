/** The tooltip of a cell of the heatmap. */
import type { JSX } from "preact";
import { isFiltered } from "../address";
import { api } from "../api";
import { duration, percent, range, time } from "../format";
import { useResource } from "../resource";
import { filters, state } from "../state";
import type { Cell } from "./heat";
import { cellText } from "./heat-label";

export interface Pointed {
  cell: Cell;
  /** Of the pointer, in the window. */
  x: number;
  y: number;
}

const REST_MS = 70;

export function CellTooltip({ on }: { on: Pointed }): JSX.Element {
  const { cell } = on;
  const { utc } = state.value;
  const filtered = isFiltered(filters.value);
  const recorded = cell.value !== null;
  const read = useResource(
    recorded && !filtered ? `${cell.cpu} ${cell.since} ${cell.until} ${cell.measure}` : null,
    (signal) => api.cell(cell.since, cell.cpu, Math.max(1, cell.until - cell.since), cell.measure, signal),
    { delayMs: REST_MS, keep: false },
  );
  const info = read.value;
  const states = (info?.states ?? []).filter((each) => each.permille > 0).sort((a, b) => b.permille - a.permille);
  const flip = on.x > window.innerWidth - 350;
  const place = { left: `${on.x + (flip ? -14 : 14)}px`, top: `${on.y + 16}px` };
  return (
    <div class={`tooltip ${flip ? "flip" : ""}`} style={place} role="tooltip" data-testid="tooltip">
      <strong>core {cell.cpu}</strong> {range(cell.since, cell.until, utc)}{" "}
      <span class="muted">({duration(cell.until - cell.since)})</span>
      {!recorded && <p>not recorded</p>}
      {recorded && (
        <p>
          <strong>{cellText(cell, filtered)}</strong>
          {cell.until - cell.since > 1500 && " in the worst second"}
        </p>
      )}
      {info && states.length > 0 && (
        <dl class="states">
          {states.map((each) => (
            <div key={each.name}>
              <dt>
                <i class={`swatch state-${each.name}`} />
                {each.name}
              </dt>
              <dd>{percent(each.permille / 1000)}</dd>
            </div>
          ))}
          {info.wait_ns !== null && info.wait_ns > 0 && (
            <div>
              <dt>
                <i class="swatch state-wait" />
                tasks waited
              </dt>
              <dd>{duration(info.wait_ns / 1e6)}</dd>
            </div>
          )}
        </dl>
      )}
      {info && info.top.length > 0 && (
        <>
          <p class="muted">on the core at {time(info.since, utc)}</p>
          <TopProcesses processes={info.top} />
        </>
      )}
      {read.slow && <p class="muted">reading that second …</p>}
      {recorded && filtered && <Matching of={cell} />}
    </div>
  );
}

const MOST = 5;

/** The processes of a cell that match the filter. */
function Matching({ of }: { of: Cell }): JSX.Element | null {
  const scope = { since: of.since, until: of.until, cpus: String(of.cpu), filters: filters.value };
  const read = useResource(of.value ? JSON.stringify(scope) : null, (signal) => api.processes(scope, MOST, signal), {
    delayMs: REST_MS,
    keep: false,
  });
  const found = read.value;
  if (read.slow) return <p class="muted">reading matches …</p>;
  if (!found || found.processes.length === 0) return null;
  return (
    <>
      <p class="muted">matches: {duration(found.total_seconds * 1000)} of CPU time</p>
      <TopProcesses processes={found.processes} />
    </>
  );
}

/** Names and numbers, each with its share. */
function TopProcesses(props: { processes: { comm: string; pid: number | null; share: number }[] }): JSX.Element {
  return (
    <dl class="states">
      {props.processes.map((each) => (
        <div key={`${each.comm} ${each.pid}`}>
          <dt>
            <bdi>{each.comm}</bdi> <span class="muted">{each.pid}</span>
          </dt>
          <dd>{percent(each.share)}</dd>
        </div>
      ))}
    </dl>
  );
}
