/** The fleet page: every node as a cell over a slider of hours, what sets sick nodes apart, and their incidents. */
import type { JSX } from "preact";
import { LiveRegion } from "../a11y";
import { KeyboardHelp } from "../keyboard";
import { Controls } from "./controls";
import { Grid } from "./grid";
import { Header } from "./header";
import { Incidents } from "./incidents";
import { fleet, shown, trouble } from "./lake";
import { NodePart } from "./node";
import { Answer, ReportPart } from "./report";
import { Slider } from "./slider";
import { state } from "./state";

export function App(): JSX.Element {
  const empty = fleet.value !== null && fleet.value.hours.length === 0;
  return (
    <>
      <Header />
      <main class="fleet">
        <div class="notices">
          {trouble.value !== null && (
            <p class="notice trouble" role="alert">
              {trouble.value}
            </p>
          )}
          {empty && <Empty />}
          {shown.value === null && !empty && trouble.value === null && <Skeleton />}
        </div>
        {shown.value !== null && (
          <>
            <div class="fleet-main">
              <Answer />
              <Slider />
              <Controls />
              <Grid />
            </div>
            <div class="fleet-side">
              <NodePart />
              <Fleetwide />
            </div>
          </>
        )}
      </main>
      <LiveRegion />
      <KeyboardHelp>
        <p class="muted">
          In the grid (Tab to it): arrows move from node to node, Enter selects one, Escape leaves. In the slider:
          arrows move by an hour.
        </p>
      </KeyboardHelp>
    </>
  );
}

/** The incidents of a selected node come right after it: from there its recordings are opened. */
function Fleetwide(): JSX.Element {
  const parts = [<ReportPart key="report" />, <Incidents key="incidents" />];
  return <>{state.value.node ? parts.reverse() : parts}</>;
}

function Empty(): JSX.Element {
  return (
    <section class="welcome">
      <h2>No node has sent anything yet</h2>
      <p>
        Nodes send a summary each minute: <code>exhume record --push URL</code>. The page updates when the first hour
        has begun.
      </p>
    </section>
  );
}

function Skeleton(): JSX.Element {
  return (
    <div class="skeleton" aria-busy="true" aria-label="reading the lake">
      <p class="muted">reading the newest hour of the lake …</p>
      <i class="short" />
      <i class="tall" />
    </div>
  );
}
