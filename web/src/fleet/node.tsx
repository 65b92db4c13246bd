/** One node: its minutes in the hour, its values and its attributes. */
import type { JSX } from "preact";
import { DataTable } from "../a11y";
import { count, plural } from "../format";
import { Placeholder, useResource } from "../resource";
import type { FleetMeasure, FleetNode } from "../types";
import { api } from "./api";
import { folded, measured } from "./format";
import { fleet, hour } from "./lake";
import { change, state } from "./state";

const REST_MS = 80;

export function NodePart(): JSX.Element | null {
  const { node, measure } = state.value;
  const at = hour.value;
  const read = useResource(
    node && at !== null ? `${node} ${at}` : null,
    (signal) => api.node(node, at ?? 0, signal),
    { delayMs: REST_MS },
  );
  if (!node) return null;
  const found = read.value?.node === node ? read.value : null;
  const chosen = fleet.value?.measures.find((each) => each.name === measure);
  return (
    <section class="side-part" aria-labelledby="node-title" aria-busy={read.loading} data-testid="node">
      <div class="side-line">
        <h2 id="node-title">{node}</h2>
        <button type="button" class="quiet" onClick={() => change({ node: "" })} aria-label="close the node">
          ✕
        </button>
      </div>
      <Placeholder of={read} what="the node" />
      {found && chosen && <Minutes of={found} measure={chosen} />}
      {found && <Values of={found} />}
      {found && <Attributes of={found} />}
    </section>
  );
}

const WIDTH = 300;
const HEIGHT = 56;

/** The chosen measure, minute by minute. */
function Minutes({ of, measure }: { of: FleetNode; measure: FleetMeasure }): JSX.Element {
  const values = of.series.find((each) => each.measure === measure.name)?.values ?? [];
  const known = values.filter((each) => each !== null);
  if (known.length === 0) return <p class="muted">It sent no {measure.title} in this hour.</p>;
  const most = Math.max(...known);
  const worst = of.minutes[values.indexOf(most)];
  const bars = of.minutes.map((minute, i) => {
    const share = most > 0 ? (values[i] ?? 0) / most : 0;
    const x = ((minute - of.at) / 3_600_000) * WIDTH;
    const tall = Math.max(values[i] === null ? 0 : 1, share * HEIGHT);
    return `M${x.toFixed(1)} ${HEIGHT}v${(-tall).toFixed(1)}h${(WIDTH / 60 - 1).toFixed(1)}V${HEIGHT}z`;
  });
  const label =
    `${measure.title} of ${plural(known.length, "minute")}: at most ${measured(most, measure)}` +
    (most > 0 ? ` in minute ${new Date(worst).getUTCMinutes()}` : "");
  return (
    <figure class="minutes">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label} preserveAspectRatio="none">
        <path d={bars.join("")} />
      </svg>
      <figcaption class="muted">{label}</figcaption>
    </figure>
  );
}

interface Row {
  measure: FleetMeasure;
  value: number;
}

function Values({ of }: { of: FleetNode }): JSX.Element {
  const rows = (fleet.value?.measures ?? []).flatMap((measure): Row[] => {
    const values = of.series.find((each) => each.measure === measure.name)?.values.filter((each) => each !== null);
    if (!values || values.length === 0) return [];
    const value = measure.fold === "max" ? Math.max(...values) : values.reduce((sum, each) => sum + each, 0);
    return value > 0 ? [{ measure, value }] : [];
  });
  return (
    <DataTable<Row>
      caption="values of the hour"
      rows={rows}
      keyOf={(row) => row.measure.name}
      columns={[
        { title: "measure", cell: (row) => <span title={folded(row.measure)}>{row.measure.title}</span> },
        { title: "value", numeric: true, cell: (row) => measured(row.value, row.measure) },
      ]}
    />
  );
}

function Attributes({ of }: { of: FleetNode }): JSX.Element {
  const rows = Object.entries(of.attributes);
  return (
    <details class="table-instead">
      <summary>{count(rows.length)} attributes</summary>
      <DataTable<[string, string]>
        caption="attributes of the node"
        rows={rows}
        keyOf={([key]) => key}
        columns={[
          {
            title: "attribute",
            cell: ([key, value]) => (
              <button
                type="button"
                class="link"
                title={`group by ${key}`}
                onClick={() => change({ group: key, pick: { key, value } })}
              >
                {key}
              </button>
            ),
          },
          { title: "value", cell: ([, value]) => <bdi>{value}</bdi> },
        ]}
      />
    </details>
  );
}
