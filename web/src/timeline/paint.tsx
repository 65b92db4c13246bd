/** "When did this run?": the seconds and cores of a frame, over the heatmap. */
import type { JSX } from "preact";
import { api } from "../api";
import { progressLabel, useProgress } from "../progress";
import { analysed, change, filters, hoveredFrame, state, view } from "../state";
import type { CoreGrid, Span } from "../types";
import { LEAST_SAMPLE_MS, useCells } from "./plot";

/** A frame under the pointer is looked up only where that is quick. */
const LONGEST_HOVER_MS = 600_000;
const HOVER_REST_MS = 150;

export function usePaint(): { grid: CoreGrid | null; label: JSX.Element | null } {
  const hovered = hoveredFrame.value;
  const frame = hovered ?? state.value.paint;
  const over = hovered ? hoverSpan() : view.value;
  const wanted = filters.value;
  const read = useCells(
    frame && over ? JSON.stringify(["frame", frame, wanted]) : null,
    (plan, signal) => api.frameTimes({ ...plan, cpus: "", filters: wanted }, plan.cells, frame ?? NOTHING, signal),
    { least: LEAST_SAMPLE_MS, delayMs: hovered ? HOVER_REST_MS : 0, over },
  );
  const progress = useProgress(read.slow && !hovered ? read.signal : null);
  const grid = frame && read.key ? read.value : null;
  const { paint } = state.value;
  const label = paint && !hovered && (
    <div class="paint-label" role="note" data-testid="painted">
      <i class="swatch ramp ink" />
      when <strong>{paint.name}</strong> ran
      {read.slow && (
        <span class="muted">
          {" "}
          (reading samples …{progress && progressLabel(progress)})
        </span>
      )}
      {read.error !== null && <span class="trouble"> {read.error}</span>}
      <button type="button" class="quiet" aria-label="stop painting this frame" onClick={() => change({ paint: null })}>
        ✕
      </button>
    </div>
  );
  return { grid, label: label || null };
}

const NOTHING = { name: "", module: "", kind: "" };

function hoverSpan(): Span | null {
  const [of, shown] = [analysed.value, view.value];
  const span = of?.selected ? { since: of.since, until: of.until } : shown;
  return span && span.until - span.since <= LONGEST_HOVER_MS ? span : null;
}
