/** The panels below the timeline: the selected scope, the tabs, and the open panel. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { formatCores } from "../cpulist";
import { useCurrentDiagnosis } from "../diagnosis/current";
import { datedRange, duration } from "../format";
import { registerShortcuts } from "../keyboard";
import { revealPanel } from "../reveal";
import { analysed, change, recording, select, state, warm } from "../state";
import { useDebounced } from "../debounce";
import { PANELS } from "./all";
import { DiagnosisAside } from "./diagnosis";
import { focusSearch } from "./flame/panel";
import type { Panel } from "./panel";

const DEBOUNCE_MS = 250;

export function PanelHost(): JSX.Element {
  const list = useRef<HTMLDivElement>(null);
  useEffect(
    () =>
      registerShortcuts(
        { keys: ["/"], group: "Panels", title: "search frames (in Events: events)", run: focusSearch },
        ...PANELS.map((panel) => ({
          keys: [panel.key],
          group: "Panels" as const,
          title: `open ${panel.title.toLowerCase()}`,
          run: () => openPanel(panel),
        })),
      ),
    [],
  );
  const now = analysed.value;
  const rested = useDebounced(now, DEBOUNCE_MS);
  // A selection is analysed at once; a view when it stops moving, and after the timeline.
  const of = now === null || now.selected ? now : (rested ?? now);
  const ready = of !== null && (of.selected || warm.value);
  useCurrentDiagnosis(ready ? of : null);
  const open = PANELS.find((panel) => panel.tab === state.value.tab) ?? PANELS[0];
  // Not rendered again while only the timeline moves.
  const tools = useMemo(() => of && open.Tools && <open.Tools of={of} />, [of, open]);
  const body = useMemo(() => ready && <open.Body of={of} key={open.tab} />, [of, open, ready]);
  const aside = ready && open.tab !== "diagnosis" && <DiagnosisAside />;
  const onKeys = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const next = PANELS[(PANELS.indexOf(open) + step + PANELS.length) % PANELS.length];
    change({ tab: next.tab }, "replace");
    list.current?.querySelector<HTMLElement>(`#tab-${next.tab}`)?.focus();
  };
  return (
    <section class="panels" aria-label="analysis">
      <ScopeLine />
      <div class="tabs-line">
        <div class="tabs" role="tablist" aria-label="panels" ref={list} onKeyDown={onKeys}>
          {PANELS.map((panel) => (
            <button
              type="button"
              role="tab"
              id={`tab-${panel.tab}`}
              key={panel.tab}
              aria-selected={panel === open}
              aria-controls="panel"
              tabIndex={panel === open ? 0 : -1}
              onClick={() => openPanel(panel)}
            >
              {panel.title}
            </button>
          ))}
        </div>
        <div class="tab-tools">{tools}</div>
      </div>
      <div class="panel-and-aside">
        <div class="panel" id="panel" role="tabpanel" aria-labelledby={`tab-${open.tab}`}>
          {body}
        </div>
        {aside}
      </div>
    </section>
  );
}

function openPanel(panel: Panel): void {
  change({ tab: panel.tab });
  window.requestAnimationFrame(revealPanel);
}

function ScopeLine(): JSX.Element | null {
  const of = analysed.value;
  if (!of) return null;
  const { utc } = state.value;
  return (
    <p class="scope" data-testid="scope">
      <strong>{of.selected ? "Selected" : "In view"}</strong> <span>{datedRange(of.since, of.until, utc)}</span>
      <span class="muted">({duration(of.until - of.since)})</span>
      <span>{formatCores(of.list, recording.value?.cores)}</span>
      {of.selected && (
        <button type="button" class="quiet" onClick={() => select(null, null)}>
          clear
        </button>
      )}
    </p>
  );
}
