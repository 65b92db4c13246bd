/** Every node as a cell, in bands by group: a canvas, with labels that select a group and a table next to it. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce, TableInstead } from "../a11y";
import { count, percent, plural } from "../format";
import { useShortcuts } from "../keyboard";
import { theme } from "../theme";
import type { FleetMeasure } from "../types";
import { drawNodes } from "./draw";
import { folded, measured } from "./format";
import { label, type Group } from "./grouping";
import { groups, shown, type Shown } from "./lake";
import { layOut, moved, placeAt, placeOf, type Layout, type Place } from "./layout";
import { change, state } from "./state";
import { NodeTooltip, type Hovered } from "./tooltip";

/** Narrower than this, labels stand above their bands. */
const NARROW_PX = 620;
const LABEL_PX = 24;
/** Of a screen's height, what is above the cells and below them. */
const AROUND_PX = 300;
const LEAST_ROOM_PX = 480;
const TALL_ROOM_PX = 1400;

const ARROWS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export function Grid(): JSX.Element | null {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [cursor, setCursor] = useState<Place | null>(null);
  const [hovered, setHovered] = useState<Hovered | null>(null);
  useShortcuts(() => [
    { keys: ["w"], group: "Nodes", title: "select the worst node", run: selectWorst },
    { keys: ["]"], group: "Nodes", title: "select the next group", run: () => stepPick(1) },
    { keys: ["["], group: "Nodes", title: "select the previous group", run: () => stepPick(-1) },
    { keys: ["x"], group: "Nodes", title: "table of the groups", run: toggleTable },
    { keys: ["Escape"], group: "Nodes", title: "clear the selection", run: () => change({ node: "", pick: null }) },
  ]);
  const now = shown.value;
  const shape = groups.value;
  const narrow = width < NARROW_PX;
  const room = Math.max(LEAST_ROOM_PX, window.innerHeight - AROUND_PX);
  const layout = useMemo(
    () => layOut(shape, width, narrow ? TALL_ROOM_PX : room, narrow ? LABEL_PX : 0),
    [shape, width, narrow, room],
  );
  useEffect(() => {
    const element = frame.current;
    if (!element) return undefined;
    const measure = (): void => setWidth(Math.floor(element.getBoundingClientRect().width));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [now === null]);
  useEffect(() => setCursor(null), [shape]);
  const look = theme.value;
  const { pick, node } = state.value;
  const picked = pick && pick.key === now?.group ? shape.findIndex((each) => each.value === pick.value) : -1;
  useEffect(() => {
    if (!canvas.current || !now || width === 0) return;
    drawNodes(canvas.current, {
      width,
      layout,
      groups: shape,
      values: now.values,
      measure: now.measure,
      look,
      key: `at=${now.at} measure=${now.measure.name} group=${now.group}`,
      picked,
      selected: node === "" ? null : placeOf(shape, now.names.indexOf(node)),
      cursor,
    });
  }, [now, shape, layout, look, picked, node, cursor, width]);
  if (!now) return null;

  const nodeAt = (place: Place): number => shape[place.group].nodes[place.position];
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = ARROWS[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || shape.length === 0) return;
    if (step) {
      const next = cursor ? moved(layout, shape, cursor, ...step) : worstPlace(shape);
      setCursor(next);
      if (next) announce(describeNode(now, shape[next.group], nodeAt(next)));
    } else if (event.key === "Enter" && cursor) change({ node: now.names[nodeAt(cursor)] });
    else if (event.key === "Escape" && cursor) setCursor(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const placed = (event: MouseEvent): Place | null => {
    const box = canvas.current?.getBoundingClientRect();
    return box ? placeAt(layout, shape, event.clientX - box.left, event.clientY - box.top) : null;
  };
  return (
    <section class={`nodes ${narrow ? "narrow" : ""}`} aria-label="nodes">
      <GroupLabels of={shape} layout={layout} now={now} narrow={narrow} />
      <div class="nodes-frame" ref={frame}>
        <canvas
          ref={canvas}
          class="cells"
          style={{ height: `${layout.height}px` }}
          tabIndex={0}
          role="application"
          aria-roledescription="grid of nodes"
          aria-label={describeAll(now, shape)}
          data-testid="cells"
          onKeyDown={onKeyDown}
          onBlur={() => setCursor(null)}
          onPointerMove={(event) => {
            const place = placed(event);
            setHovered(place && { node: nodeAt(place), x: event.clientX, y: event.clientY });
          }}
          onPointerLeave={() => setHovered(null)}
          onClick={(event) => {
            const place = placed(event);
            change({ node: place ? now.names[nodeAt(place)] : "" });
          }}
        />
        {hovered && hovered.node < now.names.length && <NodeTooltip on={hovered} now={now} />}
      </div>
      <GroupTable of={shape} now={now} />
    </section>
  );
}

function worstPlace(of: Group[]): Place | null {
  const worst = of.reduce((best, group, i) => (best < 0 || rank(group) > rank(of[best]) ? i : best), -1);
  return worst < 0 ? null : { group: worst, position: Math.max(0, of[worst].nodes.indexOf(of[worst].worstNode)) };
}

function rank(group: Group): number {
  return group.worstNode < 0 ? -1 : group.worst;
}

function selectWorst(): void {
  const now = shown.peek();
  const place = worstPlace(groups.peek());
  if (!now || !place) return;
  const group = groups.peek()[place.group];
  const node = group.nodes[place.position];
  change({ node: now.names[node] });
  announce(describeNode(now, group, node));
}

/** The next or previous group; after the last one all nodes. The group of all other values can't be selected. */
function stepPick(by: 1 | -1): void {
  const now = shown.peek();
  const selectable = groups.peek().filter((each) => each.value !== null);
  if (!now || selectable.length === 0) return;
  const { pick } = state.peek();
  const place = pick?.key === now.group ? selectable.findIndex((each) => each.value === pick.value) : -1;
  // One place more than there are groups: none of them.
  const next = (place + 1 + by + selectable.length + 1) % (selectable.length + 1);
  const group = next === 0 ? null : selectable[next - 1];
  change({ pick: group && { key: now.group, value: group.value ?? "" }, node: "" });
  announce(group ? `${now.group} ${label(group)}: ${plural(group.nodes.length, "node")}` : "all nodes");
}

function toggleTable(): void {
  const table = document.querySelector<HTMLDetailsElement>(".nodes > .table-instead");
  if (!table) return;
  table.open = !table.open;
  if (table.open) table.querySelector("summary")?.focus();
}

function describeNode(now: Shown, group: Group, node: number): string {
  const value = measured(now.values[node], now.measure);
  return `${now.names[node]}, ${now.group} ${label(group)}: ${now.measure.title} ${value}`;
}

function describeAll(now: Shown, of: Group[]): string {
  const worst = worstPlace(of);
  const parts = [`${plural(now.names.length, "node")} in ${plural(of.length, "group")} by ${now.group}`];
  if (worst) {
    const group = of[worst.group];
    parts.push(`the worst ${now.measure.title}: ${describeNode(now, group, group.nodes[worst.position])}`);
  }
  return `${parts.join("; ")}. Arrow keys move between nodes, Enter selects one.`;
}

/** Selects a group; again, all nodes. */
function GroupLabels(props: { of: Group[]; layout: Layout; now: Shown; narrow: boolean }): JSX.Element {
  const { of, layout, now, narrow } = props;
  const { pick } = state.value;
  return (
    <ul class="group-labels" style={{ height: `${layout.height}px` }} aria-label={`groups by ${now.group}`}>
      {of.map((group, i) => {
        const on = pick?.key === now.group && pick.value === group.value;
        const band = layout.bands[i];
        const place = narrow
          ? { top: `${band.top - LABEL_PX}px`, height: `${LABEL_PX}px` }
          : { top: `${band.top}px`, height: `${band.height}px` };
        const text = (
          <>
            <strong>{label(group)}</strong>
            <small>
              {count(group.nodes.length)} · {measured(group.worstNode < 0 ? null : group.worst, now.measure)}
            </small>
          </>
        );
        return (
          <li key={label(group)} style={place} class={!narrow && band.height < 2 * LABEL_PX ? "low" : ""}>
            {group.value === null ? (
              <span class="group-label">{text}</span>
            ) : (
              <button
                type="button"
                class="group-label"
                aria-pressed={on}
                title={`select ${now.group} ${label(group)}: ${plural(group.nodes.length, "node")}, worst value`}
                onClick={() => change({ pick: on ? null : { key: now.group, value: group.value ?? "" }, node: "" })}
              >
                {text}
              </button>
            )}
          </li>
        );
      })}
    </ul>
  );
}

function GroupTable({ of, now }: { of: Group[]; now: Shown }): JSX.Element {
  const { measure } = now;
  return (
    <TableInstead<Group>
      summary="groups as a table"
      note={`${measure.title}, ${folded(measure)}`}
      caption={`nodes by ${now.group}`}
      rows={of}
      keyOf={label}
      empty="No node sent anything in this hour."
      columns={[
        { title: now.group, cell: label },
        { title: "nodes", numeric: true, cell: (group) => count(group.nodes.length) },
        { title: "silent", numeric: true, cell: (group) => count(group.silent) },
        { title: "above zero", numeric: true, cell: (group) => affectedText(group) },
        { title: "worst", numeric: true, cell: (group) => worstText(group, measure) },
        {
          title: "worst node",
          cell: (group) =>
            group.worstNode >= 0 && (
              <button type="button" class="link" onClick={() => change({ node: now.names[group.worstNode] })}>
                {now.names[group.worstNode]}
              </button>
            ),
        },
      ]}
    />
  );
}

function affectedText(group: Group): string {
  const sent = group.nodes.length - group.silent;
  return sent === 0 ? "" : `${count(group.affected)} (${percent(group.affected / sent)})`;
}

function worstText(group: Group, measure: FleetMeasure): string {
  return measured(group.worstNode < 0 ? null : group.worst, measure);
}
