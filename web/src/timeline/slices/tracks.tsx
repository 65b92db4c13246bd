/** Tracks: when the threads of a process, container or pod ran, below the cores and over the same time axis. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { TableInstead } from "../../a11y";
import { api } from "../../api";
import { printCpus } from "../../cpulist";
import { useDebounced } from "../../debounce";
import { duration, plural } from "../../format";
import { Placeholder, useResource } from "../../resource";
import { extent, pointedAt, state, view } from "../../state";
import { theme } from "../../theme";
import type { Span } from "../../types";
import { momentAt } from "../axis";
import { heightOf, rowAt, rowsFor } from "../heat";
import { drawHeat, pictureOf } from "../heatdraw";
import { Lane } from "../lane";
import { LEAST_SAMPLE_MS, plotWidth, useCells } from "../plot";
import { drawSlices } from "./draw";
import { selectSlice } from "./keys";
import { byThread, describeSlice, isShort, planSlices, sliceAt, type Slice, type ThreadSlices } from "./model";
import { SliceTooltip, type PointedSlice } from "./tooltip";
import { parseTrack, type TrackKey } from "./track-key";
import { addTrack, removeTrack } from "./track-list";

const MOST_THREADS = 12;
const ROW_PX = 14;
const DEBOUNCE_MS = 250;
/** Every sample of the view is read for a track: of a longer one it is not. */
const LONGEST_MS = 600_000;

export function Tracks(): JSX.Element {
  return (
    <>
      {state.value.tracks.map((key) => {
        const track = parseTrack(key);
        return track && <Track key={key} name={key} track={track} />;
      })}
    </>
  );
}

function Track({ name, track }: { name: string; track: TrackKey }): JSX.Element {
  const shown = view.value;
  const length = shown ? shown.until - shown.since : 0;
  return (
    <Lane name="track" title="track">
      <p class="track-head" data-testid="track-head">
        <strong>{track.title}</strong>
        <button
          type="button"
          class="quiet"
          aria-label={`remove the track of ${track.title}`}
          onClick={() => removeTrack(name)}
        >
          ✕
        </button>
      </p>
      {isShort(shown) ? (
        <Threads track={track} />
      ) : length <= LONGEST_MS ? (
        <Share track={track} />
      ) : (
        <p class="lane-empty">zoom in to ten minutes or less to see when it ran, to ten seconds to see its threads</p>
      )}
    </Lane>
  );
}

/** A row for each thread, with the core that it was on. */
function Threads({ track }: { track: TrackKey }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const before = useRef<Span | null>(null);
  const [pointed, setPointed] = useState<PointedSlice | null>(null);
  const [shown, whole, width, look] = [view.value, extent.value, plotWidth.value, theme.value];
  const plan = shown && whole ? planSlices(shown, whole, before.current) : null;
  before.current = plan;
  const scope = plan && { ...plan, cpus: "", filters: track.filters };
  const read = useResource(
    scope && JSON.stringify([scope, track.tid]),
    (signal) => api.slices(scope as NonNullable<typeof scope>, signal),
    { delayMs: 60 },
  );
  // Rows change their order when the view has come to rest.
  const resting = useDebounced(shown, DEBOUNCE_MS);
  const found = useMemo(
    () => read.value && resting && byThread(read.value, resting, MOST_THREADS, track.tid),
    [read.value, resting, track.tid],
  );
  const rows = useMemo(() => rowsFor(found?.cpus ?? [], { tallest: ROW_PX * (found?.cpus.length ?? 0) }), [found]);
  useEffect(() => {
    if (!canvas.current || !shown || !whole || !found) return;
    drawHeat(canvas.current, { width, rows, view: shown, whole, look, pictures: [], paint: null });
    const labels = (index: number): string[] => [`core ${found.core[index]}`, String(found.core[index])];
    drawSlices(canvas.current, { rows, view: shown, look, slices: found, marked: null, labels });
    canvas.current.dataset.drawn = "true";
  }, [shown, width, rows, look, found]);
  const sliceUnder = (event: PointerEvent | MouseEvent): Slice | null => {
    const place = canvas.current?.getBoundingClientRect();
    if (!place || !shown || !found || found.cpus.length === 0) return null;
    const at = momentAt(event.clientX - place.left, shown, place.width);
    pointedAt.value = at;
    const index = sliceAt(found, rowAt(event.clientY - place.top, rows), at);
    return index < 0 ? null : { ...describeSlice(found, index), cpu: found.core[index] };
  };
  return (
    <>
      {found && found.rows.length > 0 && (
        <div class="track-rows">
          <div class="row-labels thread-labels" aria-hidden="true">
            {found.rows.map((row, line) => (
              <span key={row.tid} style={{ top: `${rows.tops[line]}px` }} title={`${row.comm}, thread ${row.tid}`}>
                {row.comm}
              </span>
            ))}
          </div>
          <canvas
            ref={canvas}
            class="heat"
            style={{ height: `${heightOf(rows)}px` }}
            role="img"
            data-testid="track"
            aria-label={describeThreads(found, track)}
            onPointerMove={(event) => {
              const slice = sliceUnder(event);
              setPointed(slice && { slice, x: event.clientX, y: event.clientY });
            }}
            onPointerLeave={() => {
              pointedAt.value = null;
              setPointed(null);
            }}
            onClick={(event) => {
              const slice = sliceUnder(event);
              if (slice) selectSlice(slice);
            }}
          />
          {pointed && <SliceTooltip on={pointed} />}
          <ThreadTable of={found} />
        </div>
      )}
      {found?.rows.length === 0 && <p class="lane-empty">no sample of it in view</p>}
      {!found && <Placeholder of={read} what="its samples" />}
    </>
  );
}

function describeThreads(of: ThreadSlices, track: TrackKey): string {
  const each = of.rows.slice(0, 3).map((row) => `${row.comm} ${row.tid}, ${duration(row.ms)}`);
  return `${track.title}: ${plural(of.rows.length + of.left, "thread")}; most: ${each.join("; ")}`;
}

function ThreadTable({ of }: { of: ThreadSlices }): JSX.Element {
  const cores = (line: number): string => printCpus(of.core.filter((_, index) => of.line[index] === line));
  return (
    <TableInstead<[number, ThreadSlices["rows"][number]]>
      summary={of.left > 0 ? `threads as a table (${of.left} more ran for less)` : "threads as a table"}
      caption="threads by their time on cores, the longest first"
      empty=""
      rows={of.rows.map((row, line) => [line, row])}
      keyOf={([, row]) => String(row.tid)}
      columns={[
        {
          title: "thread",
          cell: ([, row]) => (
            <button
              type="button"
              class="link"
              title="a track of this thread alone"
              onClick={() => addTrack(`thread:${row.pid}/${row.tid}`)}
            >
              <bdi>{row.comm}</bdi> {row.tid}
            </button>
          ),
        },
        { title: "process", numeric: true, cell: ([, row]) => row.pid },
        { title: "ran", numeric: true, cell: ([, row]) => duration(row.ms) },
        { title: "cores", cell: ([line]) => cores(line) },
      ]}
    />
  );
}

/** One row: the core on which it ran most, in each moment. */
function Share({ track }: { track: TrackKey }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [shown, whole, width, look] = [view.value, extent.value, plotWidth.value, theme.value];
  const read = useCells(
    JSON.stringify(["track", track.filters]),
    (plan, signal) => api.cores({ ...plan, cpus: "", filters: track.filters }, plan.cells, "busy", signal),
    { least: LEAST_SAMPLE_MS },
  );
  const grid = read.value;
  const rows = useMemo(() => ({ cpus: [grid?.cpus ?? []], tops: [0, ROW_PX], height: ROW_PX, pinned: 0 }), [grid]);
  const picture = useMemo(() => grid && pictureOf(grid, rows, look, "heat"), [grid, rows, look]);
  useEffect(() => {
    if (!canvas.current || !shown || !whole) return;
    const pictures = picture ? [picture] : [];
    drawHeat(canvas.current, { width, rows, view: shown, whole, look, pictures, paint: null });
  }, [shown, width, rows, look, picture]);
  return (
    <>
      <canvas
        ref={canvas}
        class="heat"
        style={{ height: `${ROW_PX}px` }}
        role="img"
        data-testid="track"
        aria-label={`when ${track.title} ran: the darker, the more of the core on which it ran most`}
      />
      <Placeholder of={read} what="its samples" />
    </>
  );
}
