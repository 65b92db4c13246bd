/** A flame graph with its controls, summary and table. What it shows comes from its arguments and the state. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import { announce, TableInstead } from "../../a11y";
import { COLOURS, GRAPHS, type FlameColour, type PageState } from "../../address";
import { count, duration, percent, plural } from "../../format";
import { change, recording, state } from "../../state";
import { STATES } from "../../theme";
import type { Flame } from "../../types";
import { FlameCanvas, type View } from "./canvas";
import { found, matchAt, matchCount, standing, stepMatch, type FoundIn } from "./find";
import { GRAPH_TITLES, showGraph, type Action } from "./menu";
import { labelOf, modelOf, nameOf, nodeAt, search, topFunctions, type FlameModel, type OwnTime } from "./model";
import { describe, functionShares, points, wholeLabel } from "./tip";
import { inverted, sandwich } from "./trees";
import { namelessReason } from "./unknown";

const TOP = 40;
const NO_ZOOM = { root: [], callerRoot: [] };
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
  /** The table is unfolded at first. */
  tableOpen?: boolean;
}): JSX.Element {
  const { model, actions } = props;
  const { colour, graph, search: pattern } = state.value;
  const shown = model.base ? "difference" : colour === "difference" ? "state" : colour;
  const views = useViews(model);
  const drawn = useMatches(views);
  const at = standing.value;
  const target = at && matchAt(found.value, at.index);
  useEffect(() => {
    if (!at || !target) return;
    announce(`${at.index + 1} of ${matchCount(found.peek())}: ${describe(target.model, target.node)}`);
  }, [at]);
  return (
    <>
      <FlameSummary model={model} />
      {model.base ? <DifferenceLegend /> : shown === "state" && <StateLegend />}
      <FunctionLine model={model} actions={actions} />
      {graph === "sandwich" && views.length === 0 && <ChooseFunction />}
      {views.map((view, i) => (
        <FlameCanvas
          key={view.testid}
          view={view}
          node={drawn[i].root}
          matches={pattern === "" ? null : drawn[i].matches}
          target={at && target?.model === view.model ? { node: target.node, turn: at.turn } : null}
          colour={shown}
          label={`${view.title}${summaryLabel(model)}`}
          actions={actions}
        />
      ))}
      <TopFunctions model={model} open={props.tableOpen} />
    </>
  );
}

/** The trees that are drawn: one, or those of a sandwich; none while it has no function. */
function useViews(model: FlameModel): View[] {
  const { graph, frame, up } = state.value;
  const trees = useMemo<Omit<View, "up">[]>(() => {
    const plain = { home: 0, top: 0, title: "", testid: "flame-canvas" };
    if (graph === "stacks") return [{ ...plain, model }];
    if (graph === "inverted") return [{ ...plain, model: inverted(model), title: "Inverted. " }];
    const both = sandwich(model, labelOf(model, frame));
    if (!both) return [];
    return [
      { model: both.callers, home: 1, top: 2, title: "Callers. ", testid: "callers-canvas" },
      { model: both.callees, home: 1, top: 1, title: "Callees. ", testid: "flame-canvas" },
    ];
  }, [model, graph, graph === "sandwich" ? frame : null]);
  return useMemo(
    () => trees.map((tree) => ({ ...tree, up: graph === "sandwich" ? tree.model.callers : up })),
    [trees, up],
  );
}

/** The search in what is drawn, which the controls show. */
function useMatches(views: readonly View[]): FoundIn[] {
  const { search: pattern } = state.value;
  const roots = views.map((view) => rootOf(view, state.value));
  const drawn = useMemo(
    () =>
      views.map(({ model, top }, i): FoundIn => {
        const matches = search(model, pattern, roots[i]);
        // What is not drawn can't be gone to.
        const nodes = matches?.nodes.filter((node) => model.depth[node] >= top);
        return { model, root: roots[i], matches: matches && nodes ? { ...matches, nodes } : NO_MATCHES };
      }),
    [views, pattern, roots.join()],
  );
  useLayoutEffect(() => void (found.value = pattern === "" ? [] : drawn), [drawn]);
  useLayoutEffect(() => void (standing.value = null), [pattern, views]);
  useEffect(() => () => void (found.value = []), []);
  return drawn;
}

const NO_MATCHES = { labels: new Uint8Array(), nodes: new Int32Array(), share: 0, before: null, zoomed: 0 };

/** The node that fills the width. */
function rootOf({ model, home }: View, { root, callerRoot }: PageState): number {
  return Math.max(home, nodeAt(model, model.callers ? callerRoot : root));
}

function ChooseFunction(): JSX.Element {
  const { frame } = state.value;
  return (
    <p class="placeholder muted" data-testid="choose-function">
      {frame ? `${frame.name} did not run here. ` : ""}Choose a function: click its name below, or right-click a frame
      of the stacks, <em>Callers and callees</em>.
    </p>
  );
}

/** The function that is outlined, in all its places: its times, why it has no name, and what can be done with it. */
function FunctionLine({ model, actions }: { model: FlameModel; actions: readonly Action[] }): JSX.Element | null {
  const { frame, graph } = state.value;
  const label = useMemo(() => labelOf(model, frame), [model, frame]);
  if (!frame || label < 0) return null;
  const { places } = model.functions;
  const nameless = namelessReason(frame, recording.value);
  const offered = actions.filter((each) => each.ofFunction && !(graph === "sandwich" && each.key === "s"));
  return (
    <div class="function-line" role="group" aria-label="the outlined function" data-testid="function">
      <strong>{frame.name}</strong>
      {frame.module && <span class="muted">{frame.module}</span>}
      <span>
        {functionShares(model, label, model.now[0])} of {wholeLabel(model)}
      </span>
      <span class="muted">
        {plural(places[label], "place")}
        {graph === "sandwich" && ": its callers above it, its callees below"}
      </span>
      <span class="function-actions">
        {offered.map((action) => (
          <button type="button" key={action.key} onClick={() => action.ofFunction?.(frame)}>
            {action.title}
          </button>
        ))}
        <button
          type="button"
          class="quiet"
          aria-label={`stop outlining ${frame.name}`}
          onClick={() => change({ frame: null, ...(graph === "sandwich" && { graph: "stacks", root: [] }) })}
        >
          ✕
        </button>
      </span>
      {nameless && (
        <p class="nameless" data-testid="nameless">
          {nameless.why} <strong>To name it:</strong> {nameless.remedy}.
        </p>
      )}
    </div>
  );
}

/** Search, tree, zoom, hidden frames, direction and colours. */
export function FlameControls({ difference }: { difference: boolean }): JSX.Element {
  const { up, colour, hide, root, callerRoot, graph } = state.value;
  return (
    <>
      <SearchBox />
      <div class="switch" role="group" aria-label="which tree is drawn">
        {GRAPHS.map((each) => (
          <button
            type="button"
            key={each}
            aria-pressed={graph === each}
            title={GRAPH_TITLES[each]}
            data-testid={`graph-${each}`}
            onClick={() => showGraph(each)}
          >
            {each}
          </button>
        ))}
      </div>
      {root.length + callerRoot.length > 0 && (
        <button type="button" onClick={() => change({ root: [], callerRoot: [] })} data-testid="zoom-out">
          zoom out
        </button>
      )}
      {hide.length > 0 && (
        <button type="button" onClick={() => change({ hide: [] })} title={hide.join(", ")} data-testid="unhide">
          show {plural(hide.length, "hidden frame")}
        </button>
      )}
      {graph !== "sandwich" && (
        <button type="button" onClick={() => change({ up: !up })} aria-pressed={up} data-testid="up">
          {up ? "flames" : "icicles"}
        </button>
      )}
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

/** What was found is next to what was typed: the graph may be scrolled away. */
function SearchBox(): JSX.Element {
  const { search: pattern } = state.value;
  const many = matchCount(found.value);
  const at = standing.value;
  return (
    <div class="frame-search">
      <input
        type="search"
        placeholder="search frames ( / )"
        aria-label="search frames: text or a regular expression; Enter and Shift with Enter go from match to match"
        value={pattern}
        data-testid="flame-search"
        onInput={(event) => change({ search: event.currentTarget.value }, "replace")}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
          else if (event.key === "Enter") stepMatch(event.shiftKey ? -1 : 1);
        }}
      />
      {pattern !== "" && (
        <>
          <button
            type="button"
            disabled={many === 0}
            aria-label="previous match"
            title="previous match (Shift+Enter)"
            onClick={() => stepMatch(-1)}
            data-testid="previous-match"
          >
            ‹
          </button>
          <button
            type="button"
            disabled={many === 0}
            aria-label="next match"
            title="next match (Enter)"
            onClick={() => stepMatch(1)}
            data-testid="next-match"
          >
            ›
          </button>
          {at && many > 0 && (
            <span class="match-at" data-testid="match-at">
              {count(at.index + 1)} of {count(many)}
            </span>
          )}
          <span class="flame-found" role="status" data-testid="found">
            {many === 0 ? `no frame matches “${pattern}”` : matchSummary(found.value)}
          </span>
        </>
      )}
    </div>
  );
}

/** How much is in frames that match, and of what that is a share; a sandwich has a part of it on either side. */
function matchSummary(all: readonly FoundIn[]): string {
  const [{ model, matches, root }] = all;
  const frames = plural(matchCount(all), "matching frame");
  if (all.length > 1) {
    return `${frames}: ${all.map((each) => `${count(each.matches.nodes.length)} ${side(each)}`).join(", ")}`;
  }
  const parts = [`${frames}: ${percent(matches.share)} of ${wholeLabel(model)}`];
  if (matches.before !== null) parts.push(`${percent(matches.before)} of ${model.flame.baseline}`);
  if (root !== 0) parts.push(`${percent(matches.zoomed)} of ${nameOf(model, root)}`);
  return parts.join("; ");
}

function side({ model }: FoundIn): string {
  return model.callers ? "among the callers" : "in it and among the callees";
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

function TopFunctions({ model, open }: { model: FlameModel; open?: boolean }): JSX.Element {
  const rows = useMemo(() => topFunctions(model, TOP), [model]);
  const { differential } = model.flame;
  return (
    <TableInstead<OwnTime>
      summary={differential ? "Functions that changed most" : "Top functions"}
      note={`Shares are of ${wholeLabel(model)}.`}
      caption={`functions by self time, as shares of ${wholeLabel(model)}`}
      open={open}
      rows={rows}
      keyOf={(row) => `${row.frame.kind} ${row.frame.module} ${row.frame.name}`}
      empty="No functions were sampled."
      columns={[
        {
          title: "function",
          cell: (row) => (
            <button
              type="button"
              class="link"
              title="outline all its places; in a sandwich, its callers and callees"
              onClick={() => change({ frame: row.frame, ...NO_ZOOM })}
            >
              {row.frame.name}
            </button>
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
