/** The tooltip of a node: its value, its group, and what else is known of the hour. */
import type { JSX } from "preact";
import { fleet, valueOfNode, type Shown } from "./lake";
import { valueOf } from "./columns";
import { measured } from "./format";

export interface Hovered {
  node: number;
  /** Of the pointer, in the window. */
  x: number;
  y: number;
}

const WIDTH_PX = 300;
const MOST = 6;

export function NodeTooltip({ on, now }: { on: Hovered; now: Shown }): JSX.Element {
  const flip = on.x > window.innerWidth - WIDTH_PX;
  const place = { left: `${on.x + (flip ? -14 : 14)}px`, top: `${on.y + 16}px` };
  const others = (fleet.value?.measures ?? [])
    .filter((each) => each.name !== now.measure.name && each.name !== "uptime_s")
    .map((measure) => ({ measure, value: valueOfNode(on.node, measure.name) }))
    .filter((each) => each.value !== null && each.value > 0)
    .slice(0, MOST);
  return (
    <div class={`tooltip ${flip ? "flip" : ""}`} style={place} role="tooltip" data-testid="tooltip">
      <strong>{now.names[on.node]}</strong>
      {now.column && (
        <span class="muted">
          {" "}
          {now.group} {valueOf(now.column, on.node) || "not set"}
        </span>
      )}
      <p>
        {now.measure.title} <strong>{measured(now.values[on.node], now.measure)}</strong>
      </p>
      {others.length > 0 && (
        <dl class="states">
          {others.map(({ measure, value }) => (
            <div key={measure.name}>
              <dt>{measure.title}</dt>
              <dd>{measured(value, measure)}</dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}
