/** The flame graph of what is selected, and its difference to a baseline. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { announce, TableInstead } from "../../a11y";
import { BASELINES, COLOURS, type FlameColour } from "../../address";
import { api, flameQuestion, type Baseline } from "../../api";
import { duration, percent, plural, range } from "../../format";
import { Standby, useResource } from "../../resource";
import { change, flameScope, pickingBase, state, type Analysed } from "../../state";
import type { Flame } from "../../wire";
import { ExportMenu } from "../export";
import type { Panel, PanelProps } from "../panel";
import { blindWords, Unasked, useUnasked } from "../unasked";
import { FlameCanvas } from "./canvas";
import { modelOf, topFunctions, type FlameModel, type OwnTime } from "./model";
import { points, wholeWords } from "./tip";

const TOP = 40;
const FIRST_WAIT_MS = 250;
const COLOUR_WORDS: Record<FlameColour, string> = {
  state: "kernel and user",
  module: "module",
  difference: "difference",
};
const BASELINE_WORDS: Record<Baseline, string> = {
  none: "nothing",
  before: "the same cores, before",
  others: "the other cores, at the same time",
  window: "a time picked by hand",
};

function FlameBody({ of }: PanelProps): JSX.Element {
  return <FlameOf of={of} baseline="none" />;
}

function DifferenceBody({ of }: PanelProps): JSX.Element {
  const { baseline } = state.value;
  return (
    <>
      <BaselineLine of={of} />
      <FlameOf of={of} baseline={baseline === "none" ? "before" : baseline} />
    </>
  );
}

function FlameOf({ of, baseline }: { of: Analysed; baseline: Baseline }): JSX.Element {
  const [long, ask] = useUnasked(of);
  const scope = flameScope(of, baseline);
  // What nobody selected lets the timeline be drawn first.
  const wait = { delayMs: of.selected ? 0 : FIRST_WAIT_MS };
  const read = useResource(long ? null : flameQuestion(scope), (signal) => api.flame(scope, signal), wait);
  const flame = read.value;
  const { hide, colour } = state.value;
  const model = useMemo(() => flame && modelOf(flame, hide), [flame, hide.join("\u0000")]);
  if (long) return <Unasked of={of} onAsk={ask} />;
  const drawn = model !== null && (model.now[0] > 0 || (model.base?.[0] ?? 0) > 0);
  return (
    <div class="flame" aria-busy={read.loading} data-testid="flame" data-loading={read.loading}>
      <Standby of={read} what="the stacks" empty={!drawn && emptyWords(of, flame)} />
      {drawn && (
        <>
          <FlameWords model={model} />
          {model.base && <DifferenceLegend />}
          <FlameCanvas
            model={model}
            colour={baseline === "none" ? (colour === "difference" ? "state" : colour) : "difference"}
            label={spokenSummary(model)}
          />
          <TopFunctions model={model} />
        </>
      )}
    </div>
  );
}

function emptyWords(of: Analysed, flame: Flame | null): string {
  if (flame && flame.weight_us > 0) return "All that ran here is hidden: show the hidden frames again.";
  const idle = "the cores idled or were offline, or a filter leaves nothing. Select more, or clear the filter.";
  // What could not be seen is told before anything is taken for idle.
  return blindWords(of) ?? `No stack was sampled here: ${flame?.blind_spots.join("; ") || idle}`;
}

function FlameWords({ model }: { model: FlameModel }): JSX.Element {
  const { flame, now, samples } = model;
  const spots = flame.blind_spots.length;
  const hidden = flame.weight[0] - now[0];
  return (
    <p class="flame-words muted" data-testid="flame-words">
      {plural(samples[0], "sample")} · {duration(now[0] / 1000)} of CPU time
      {hidden > 0 && ` without what is hidden (${duration(hidden / 1000)})`}
      {flame.differential && ` · against ${flame.baseline} (${plural(flame.base_samples, "sample")})`}
      {flame.differential && flame.base_weight_us === 0 && (
        <span class="trouble"> · nothing to compare with: all of it looks as if it had grown</span>
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

function DifferenceLegend(): JSX.Element {
  return (
    <ul class="legend" aria-label="what the colours of the difference mean">
      <li>
        <i class="swatch grew" />
        has more of the time
      </li>
      <li>
        <i class="swatch shrank" />
        has less
      </li>
      <li>
        <i class="swatch unchanged" />
        the same
      </li>
      <li class="less">strongest from 25 points on; the width is the mean of both</li>
    </ul>
  );
}

function spokenSummary(model: FlameModel): string {
  const [top] = topFunctions(model, 1);
  const most = top ? `; most time is in ${top.frame.name}, ${percent(top.own)} of ${wholeWords(model)}` : "";
  return `Flame graph of ${plural(model.samples[0], "sample")}${most}`;
}

function TopFunctions({ model }: { model: FlameModel }): JSX.Element {
  const rows = useMemo(() => topFunctions(model, TOP), [model]);
  const { differential } = model.flame;
  return (
    <TableInstead<OwnTime>
      summary={`${differential ? "The functions that changed most" : "The top functions"}, as a table`}
      note={`Shares are of ${wholeWords(model)}.`}
      caption={`functions by their own time, as shares of ${wholeWords(model)}`}
      rows={rows}
      keyOf={(row) => `${row.frame.kind} ${row.frame.module} ${row.frame.name}`}
      empty="no functions were sampled"
      columns={[
        {
          title: "function",
          cell: (row) => (
            <button type="button" class="link" onClick={() => change({ paint: row.frame })} title="when did this run?">
              {row.frame.name}
            </button>
          ),
        },
        { title: "where", cell: (row) => row.frame.module || row.frame.kind },
        { title: "in itself", numeric: true, cell: (row) => percent(row.own) },
        { title: "with what it calls", numeric: true, cell: (row) => percent(row.total) },
        ...(differential ? [{ title: "change", numeric: true, cell: (row: OwnTime) => points(row.grown) }] : []),
      ]}
    />
  );
}

/** What is selected stays so; the next box that is drawn is what it is compared with. */
function pick(on: boolean): void {
  pickingBase.value = on;
  if (on) announce("drag in the heatmap over the time to compare with");
}

function BaselineLine({ of }: { of: Analysed }): JSX.Element {
  const { baseline, b0, b1, utc } = state.value;
  const chosen = baseline === "none" ? "before" : baseline;
  return (
    <p class="baseline-line">
      <label>
        against{" "}
        <select
          value={chosen}
          data-testid="baseline"
          onChange={(event) => {
            const wanted = event.currentTarget.value as Baseline;
            change({ baseline: wanted });
            if (wanted === "window" && b0 === null) pick(true);
            else pickingBase.value = false;
          }}
        >
          {BASELINES.filter((each) => each !== "none").map((each) => (
            <option key={each} value={each}>
              {BASELINE_WORDS[each]}
            </option>
          ))}
        </select>
      </label>
      {chosen === "window" && (
        <>
          <span>{b0 !== null && b1 !== null ? range(b0, b1, utc) : "none picked yet: the time before is used"}</span>
          <button
            type="button"
            aria-pressed={pickingBase.value}
            data-testid="pick-base"
            onClick={() => pick(!pickingBase.peek())}
          >
            {pickingBase.value ? "now drag in the heatmap over the time to compare with" : "pick it in the heatmap"}
          </button>
          <button type="button" onClick={() => change({ b0: of.since, b1: of.until })}>
            use what is selected now as the baseline
          </button>
        </>
      )}
      {chosen === "others" && of.list === null && (
        <span class="trouble">every core is looked at, so there are no others: select some cores</span>
      )}
    </p>
  );
}

function FlameTools({ of }: PanelProps): JSX.Element {
  const { search, up, colour, hide, root, tab, baseline } = state.value;
  const difference = tab === "difference";
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
                {COLOUR_WORDS[each]}
              </option>
            ))}
          </select>
        </label>
      )}
      <ExportMenu scope={flameScope(of, difference ? (baseline === "none" ? "before" : baseline) : "none")} />
    </>
  );
}

/** `/` goes to the search, from anywhere: of the events where those are open, else of frames. */
export function focusSearch(): void {
  const { tab } = state.peek();
  if (tab !== "difference" && tab !== "events") change({ tab: "flame" }, "replace");
  // As soon as the tab's field is there, which is before the next key. A frame later may be too late: who types, types.
  queueMicrotask(() => document.querySelector<HTMLInputElement>(".tab-tools [type=search]")?.focus());
}

export const flamePanel: Panel = { tab: "flame", title: "Flame", key: "1", Body: FlameBody, Tools: FlameTools };
export const differencePanel: Panel = {
  tab: "difference",
  title: "Difference",
  key: "2",
  Body: DifferenceBody,
  Tools: FlameTools,
};
