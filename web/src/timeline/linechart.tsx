/** One lane's lines, drawn by uPlot over the page's own time axis. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { view } from "../state";
import { css, theme, type Theme } from "../theme";
import type { Lane } from "../types";
import { useTimeBrush } from "./brush";
import { laneLabel } from "./lanes";
import type { Lines } from "./lines";
import { plotWidth } from "./plot";

const HEIGHT = 56;

/** The colours of states are for states: lines differ by accent, ink and dashes. */
function strokes(look: Theme): { stroke: string; width: number; dash?: number[] }[] {
  return [
    { stroke: look.accent, width: 2 },
    { stroke: css(look.ink), width: 1.25, dash: [5, 3] },
    { stroke: look.muted, width: 1.5, dash: [1.5, 2.5] },
  ];
}

export function LineChart({ data, lines }: { data: Lane; lines: Lines }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const [shown, width, look] = [view.value, plotWidth.value, theme.value];
  useTimeBrush(place, true);
  useEffect(() => {
    if (!place.current) return undefined;
    const pens = strokes(look);
    const made = new uPlot(
      {
        width: Math.max(10, width),
        height: HEIGHT,
        padding: [19, 0, 3, 0],
        legend: { show: false },
        cursor: { show: false },
        axes: [{ show: false }, { show: false }],
        scales: {
          x: { time: false, range: () => rangeOf() },
          y: { range: (_self, _least, most) => [0, Number.isFinite(most) && most > 0 ? most * 1.08 : 1] },
        },
        series: [
          {},
          ...data.series.map((series, i) => ({
            label: series.title,
            ...pens[i % pens.length],
            points: { show: lines.times.length < 3 },
          })),
        ],
      },
      [lines.times, ...lines.values],
      place.current,
    );
    chart.current = made;
    return () => {
      made.destroy();
      chart.current = null;
    };
  }, [lines, look, width]);
  useEffect(() => {
    const [since, until] = rangeOf();
    chart.current?.setScale("x", { min: since, max: until });
  }, [shown]);
  return (
    <div
      ref={place}
      class="line-chart brushable"
      role="img"
      aria-label={laneLabel(data, lines)}
      data-testid="line-chart"
    />
  );
}

function rangeOf(): [number, number] {
  const shown = view.peek();
  return shown ? [shown.since, shown.until] : [0, 1];
}
