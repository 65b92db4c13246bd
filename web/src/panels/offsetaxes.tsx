/** Axes and legend of the sub-second view. */
import type { JSX } from "preact";
import { count, duration, zone } from "../format";
import { state } from "../state";
import { ticks } from "../timeline/axis";
import { Ticks } from "../timeline/ruler";
import type { Subsecond } from "../types";
import { offsetTicks, scaleOf } from "./offsets";

/** From this length on, offsets are in seconds. */
const LONG_COLUMN_MS = 10_000;
function inSeconds(grid: Subsecond): boolean {
  return grid.column_ms >= LONG_COLUMN_MS;
}

/** What the axis at the left counts. */
export function offsetTitle(grid: Subsecond): string {
  const unit = inSeconds(grid) ? "s" : "ms";
  return `${unit} into the ${grid.column_ms === 1000 ? "second" : duration(grid.column_ms)}`;
}

export function OffsetAxis({ grid }: { grid: Subsecond }): JSX.Element {
  return (
    <div class="offset-axis" aria-hidden="true" data-testid="offset-axis">
      {offsetTicks(grid.column_ms).map((at) => (
        <span key={at} style={{ bottom: `${(100 * at) / grid.column_ms}%` }}>
          {count(inSeconds(grid) ? at / 1000 : at)}
        </span>
      ))}
    </div>
  );
}

export function ColumnAxis({ grid, width }: { grid: Subsecond; width: number }): JSX.Element {
  const { utc } = state.value;
  const span = { since: grid.since, until: grid.since + grid.columns * grid.column_ms };
  return (
    <div class="ruler" aria-hidden="true" data-testid="column-axis">
      <Ticks ticks={ticks(span, width, utc, grid.column_ms)} shown={span} width={width} />
    </div>
  );
}

export function OffsetLegend({ grid, gaps }: { grid: Subsecond; gaps: boolean }): JSX.Element {
  const { least, full } = scaleOf(grid);
  return (
    <ul class="legend" aria-label="what the axes and colours mean" data-testid="offset-legend">
      <li>up: {offsetTitle(grid)}</li>
      <li>
        across: time ({zone(grid.since, state.value.utc)}), {duration(grid.column_ms)} a column
      </li>
      <li>
        <i class="swatch samples-0" />
        no sample
      </li>
      <li>
        <i class="swatch ramp state-system" />
        mostly in the kernel
      </li>
      <li>
        <i class="swatch ramp state-user" />
        mostly in programs
      </li>
      <li>
        {full <= 1 ? "1 sample" : `faint: ${count(Math.max(1, least))}, full: ${count(full)} samples`}
        {full < grid.most && " or more"} in a cell of {duration(grid.column_ms / grid.rows)}
      </li>
      {gaps && (
        <li>
          <i class="swatch hatched" />
          not recorded
        </li>
      )}
    </ul>
  );
}
