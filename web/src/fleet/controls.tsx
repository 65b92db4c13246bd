/** How nodes are grouped, coloured and ordered; and what the colours mean. */
import type { JSX } from "preact";
import { announce } from "../a11y";
import { useShortcuts } from "../keyboard";
import { css, theme } from "../theme";
import { cellColour } from "./draw";
import { folded, measured } from "./format";
import { strength } from "./grouping";
import { fleet, keys, shown } from "./lake";
import { change, state } from "./state";

/** Listed before the others. */
const USUAL = ["zone", "pool", "image", "kernel", "instance_type", "os", "bootstrap", "cgroup.version"];
/** Parts of the full value that the legend shows. */
const STEPS = { linear: [0, 0.25, 0.5, 0.75, 1], log: [0, 0.01, 0.03, 0.1, 0.3, 1] };

export function Controls(): JSX.Element | null {
  useShortcuts(() => [
    { keys: ["g"], group: "Nodes", title: "group by the next attribute", run: () => stepGroup(1) },
    { keys: ["G"], group: "Nodes", title: "group by the previous attribute", run: () => stepGroup(-1) },
    { keys: ["m"], group: "Nodes", title: "colour by the next measure", run: () => stepMeasure(1) },
    { keys: ["M"], group: "Nodes", title: "colour by the previous measure", run: () => stepMeasure(-1) },
    { keys: ["o"], group: "Nodes", title: "order by name, or the worst first", run: toggleOrder },
  ]);
  const { group, measure, order } = state.value;
  const info = fleet.value;
  if (!info) return null;
  const listed = listedKeys(group);
  return (
    <div class="controls">
      <label>
        group by
        <select value={group} onChange={(event) => change({ group: event.currentTarget.value, pick: null })}>
          <optgroup label="usual">
            {listed.usual.map((key) => (
              <option key={key} value={key}>
                {key}
              </option>
            ))}
          </optgroup>
          {listed.others.length > 0 && (
            <optgroup label="all attributes">
              {listed.others.map((key) => (
                <option key={key} value={key}>
                  {key}
                </option>
              ))}
            </optgroup>
          )}
        </select>
      </label>
      <label>
        colour by
        <select value={measure} onChange={(event) => change({ measure: event.currentTarget.value })}>
          {info.measures.map((each) => (
            <option key={each.name} value={each.name}>
              {each.title}
            </option>
          ))}
        </select>
      </label>
      <button type="button" aria-pressed={order === "worst"} onClick={toggleOrder} title="order (o)">
        worst first
      </button>
      <Legend />
    </div>
  );
}

function listedKeys(group: string): { usual: string[]; others: string[] } {
  const known = keys.value;
  const usual = known.length === 0 ? USUAL : USUAL.filter((key) => known.includes(key));
  const others = known.filter((key) => !usual.includes(key));
  if (!usual.includes(group) && !others.includes(group)) usual.push(group);
  return { usual, others };
}

function stepGroup(by: 1 | -1): void {
  const { usual, others } = listedKeys(state.peek().group);
  const all = [...usual, ...others];
  const next = all[(all.indexOf(state.peek().group) + by + all.length) % all.length];
  change({ group: next, pick: null });
  announce(`grouped by ${next}`);
}

function stepMeasure(by: 1 | -1): void {
  const all = fleet.peek()?.measures ?? [];
  if (all.length === 0) return;
  const place = all.findIndex((each) => each.name === state.peek().measure);
  const next = all[(place + by + all.length) % all.length];
  change({ measure: next.name });
  announce(`coloured by ${next.title}`);
}

function toggleOrder(): void {
  const next = state.peek().order === "name" ? "worst" : "name";
  change({ order: next });
  announce(next === "worst" ? "the worst first" : "ordered by name");
}

function Legend(): JSX.Element | null {
  const measure = shown.value?.measure;
  const look = theme.value;
  if (!measure) return null;
  return (
    <ul class="legend" aria-label="colours of nodes">
      <li>{folded(measure)}:</li>
      {STEPS[measure.scale].map((step) => {
        const value = step * measure.full;
        const colour = css(cellColour(strength(value, measure) ?? 0, measure, look));
        return (
          <li key={step}>
            <i class="swatch" style={{ background: colour }} />
            {`${measured(value, measure)}${step === 1 ? "+" : ""}`}
          </li>
        );
      })}
      <li>
        <i class="swatch hatched" />
        sent nothing
      </li>
    </ul>
  );
}
