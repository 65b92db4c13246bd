/** The report of a flame graph. */
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { FlameControls, FlameGraph, hasTime, useFlameModel } from "../panels/flame/graph";
import { GRAPH_ACTIONS } from "../panels/flame/menu";
import { change, state } from "../state";
import type { Flame, FlameReport } from "../types";

export function FlamePage({ report }: { report: FlameReport }): JSX.Element {
  const { flame } = report;
  return (
    <>
      <header class="report-header">
        <h1>{report.title}</h1>
        <p class="muted">{[report.window, ...report.filters].join(" · ")}</p>
      </header>
      <main class="report wide">
        <ReportFlame flame={flame} tableOpen />
      </main>
    </>
  );
}

/** A flame graph with its controls; `/` goes to the search and Escape resets it. */
export function ReportFlame({ flame, tableOpen }: { flame: Flame; tableOpen?: boolean }): JSX.Element {
  const model = useFlameModel(flame);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const typing = event.target instanceof HTMLInputElement;
      if (event.key === "Escape") change({ search: "", root: [], callerRoot: [] });
      else if (event.key === "/" && !typing) document.querySelector<HTMLInputElement>("[type=search]")?.select();
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
  if (!model) return <></>;
  const hidden = flame.weight_us + flame.base_weight_us > 0;
  return (
    <div class="flame" data-testid="flame">
      <div class="report-controls">
        <FlameControls difference={flame.differential} />
      </div>
      {hasTime(model) ? (
        <FlameGraph model={model} actions={GRAPH_ACTIONS} tableOpen={tableOpen} />
      ) : (
        <p class="placeholder muted" data-testid="empty">
          {hidden ? `All frames are hidden (${state.value.hide.join(", ")}).` : "No samples in this window."}
        </p>
      )}
    </div>
  );
}
