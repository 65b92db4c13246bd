/** A flame graph with its controls, summary and table. What it shows comes from its arguments and the state. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { TableInstead } from "../../a11y";
import { COLOURS, type FlameColour } from "../../address";
import type { FrameName } from "../../api";
import { duration, percent, plural } from "../../format";
import { change, state } from "../../state";
import { STATES } from "../../theme";
import type { Flame } from "../../types";
import { FlameCanvas } from "./canvas";
import type { Action } from "./menu";
import { modelOf, topFunctions, type FlameModel, type OwnTime } from "./model";
import { points, wholeLabel } from "./tip";

const TOP = 40;
/** The states that a frame can be in. */
const FRAME_STATES = ["system", "softirq", "user"];
const COLOUR_LABELS: Record<FlameColour, string> = {
  state: "kernel and user",
  module: "module",
  difference: "difference",
};

/** The model of a flame graph without its hidden frames. */
export function useFlameModel(flame: Flame | null): FlameModel | null {
  const { hide } = state.value;
  return useMemo(() => flame && modelOf(flame, hide), [flame, hide.join("\u0000")]);
}

export function hasTime(model: FlameModel): boolean {
  return model.now[0] > 0 || (model.base?.[0] ?? 0) > 0;
}

export function FlameGraph(props: {
  model: FlameModel;
  actions: readonly Action[];
  /** What a click on a function of the table does; without it names are plain text. */
  onFunction?: (frame: FrameName) => void;
  /** The table is unfolded at first. */
  tableOpen?: boolean;
}): JSX.Element {
  const { model } = props;
  const { colour } = state.value;
  const shown = model.base ? "difference" : colour === "difference" ? "state" : colour;
  return (
    <>
      <FlameSummary model={model} />
      {model.base ? <DifferenceLegend /> : shown === "state" && <StateLegend />}
      <FlameCanvas model={model} colour={shown} label={summaryLabel(model)} actions={props.actions} />
      <TopFunctions model={model} onFunction={props.onFunction} open={props.tableOpen} />
    </>
  );
}

/** Search, zoom, hidden frames, direction and colours. */
export function FlameControls({ difference }: { difference: boolean }): JSX.Element {
  const { search, up, colour, hide, root } = state.value;
  return (
    <>
      <input
        type="search"
        placeholder="search frames ( / )"
        aria-label="search frames: text or a regular expression"
        value={search}
        data-testid="flame-search"
        onInput={(event) => change({ search: event.currentTarget.value }, "replace")}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      {root.length > 0 && (
        <button type="button" onClick={() => change({ root: [] })} data-testid="zoom-out">
          zoom out
        </button>
      )}
      {hide.length > 0 && (
        <button type="button" onClick={() => change({ hide: [] })} title={hide.join(", ")} data-testid="unhide">
          show {plural(hide.length, "hidden frame")}
        </button>
      )}
      <button type="button" onClick={() => change({ up: !up })} aria-pressed={up} data-testid="up">
        {up ? "flames" : "icicles"}
      </button>
      {!difference && (
        <label class="inline">
          colour{" "}
          <select
            value={colour === "difference" ? "state" : colour}
            data-testid="colour"
            onChange={(event) => change({ colour: event.currentTarget.value as FlameColour })}
          >
            {COLOURS.filter((each) => each !== "difference").map((each) => (
              <option key={each} value={each}>
                {COLOUR_LABELS[each]}
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

function FlameSummary({ model }: { model: FlameModel }): JSX.Element {
  const { flame, now, samples } = model;
  const spots = flame.blind_spots.length;
  const hidden = flame.weight[0] - now[0];
  return (
    <p class="flame-summary muted" data-testid="flame-summary">
      {plural(samples[0], "sample")} · {duration(now[0] / 1000)} of CPU time
      {hidden > 0 && ` without hidden frames (${duration(hidden / 1000)})`}
      {flame.differential && ` · against ${flame.baseline} (${plural(flame.base_samples, "sample")})`}
      {flame.differential && flame.base_weight_us === 0 && (
        <span class="trouble"> · the baseline has no samples: everything looks as if it had grown</span>
      )}
      {flame.dropped > 0 && ` · ${plural(flame.dropped, "frame")} too thin to draw`}
      {spots > 0 && (
        <details class="spots">
          <summary>{plural(spots, "blind spot")}</summary>
          <ul>
            {flame.blind_spots.slice(0, 20).map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </details>
      )}
    </p>
  );
}

function StateLegend(): JSX.Element {
  return (
    <ul class="legend" aria-label="colours of the frames">
      {STATES.filter(({ name }) => FRAME_STATES.includes(name)).map(({ name, meaning }) => (
        <li key={name}>
          <i class={`swatch state-${name}`} />
          {name}: {meaning}
        </li>
      ))}
    </ul>
  );
}

function DifferenceLegend(): JSX.Element {
  return (
    <ul class="legend" aria-label="colours of the difference">
      <li>
        <i class="swatch grew" />
        larger share
      </li>
      <li>
        <i class="swatch shrank" />
        smaller share
      </li>
      <li>
        <i class="swatch unchanged" />
        unchanged
      </li>
      <li class="less">full colour from 25 points; widths are the mean of both sides</li>
    </ul>
  );
}

function summaryLabel(model: FlameModel): string {
  const [top] = topFunctions(model, 1);
  const most = top ? `; most self time: ${top.frame.name}, ${percent(top.own)} of ${wholeLabel(model)}` : "";
  return `Flame graph of ${plural(model.samples[0], "sample")}${most}`;
}

function TopFunctions(props: {
  model: FlameModel;
  onFunction?: (frame: FrameName) => void;
  open?: boolean;
}): JSX.Element {
  const { model, onFunction } = props;
  const rows = useMemo(() => topFunctions(model, TOP), [model]);
  const { differential } = model.flame;
  return (
    <TableInstead<OwnTime>
      summary={differential ? "Functions that changed most" : "Top functions"}
      note={`Shares are of ${wholeLabel(model)}.`}
      caption={`functions by self time, as shares of ${wholeLabel(model)}`}
      open={props.open}
      rows={rows}
      keyOf={(row) => `${row.frame.kind} ${row.frame.module} ${row.frame.name}`}
      empty="No functions were sampled."
      columns={[
        {
          title: "function",
          cell: (row) =>
            onFunction ? (
              <button type="button" class="link" onClick={() => onFunction(row.frame)} title="when did this run?">
                {row.frame.name}
              </button>
            ) : (
              row.frame.name
            ),
        },
        { title: "module", cell: (row) => row.frame.module || row.frame.kind },
        { title: "self", numeric: true, cell: (row) => percent(row.own) },
        { title: "total", numeric: true, cell: (row) => percent(row.total) },
        ...(differential ? [{ title: "change", numeric: true, cell: (row: OwnTime) => points(row.grown) }] : []),
      ]}
    />
  );
}
