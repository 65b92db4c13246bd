/** The page: one screen, one time axis. */
import type { JSX } from "preact";
import { LiveRegion, SkipLinks } from "./a11y";
import { Answer } from "./answer/answer";
import { CausePageDialog } from "./diagnosis/causepage";
import { Header } from "./header";
import { KeyboardHelp } from "./keyboard";
import { StickyPane } from "./layout";
import { Notices } from "./notices";
import { PanelHost } from "./panels/host";
import { extent } from "./state";
import { TerminalDialog } from "./terminal";
import { Timeline } from "./timeline/timeline";

export function App(): JSX.Element {
  return (
    <>
      <SkipLinks />
      <Header />
      <main>
        <Notices />
        {extent.value && (
          <>
            <Answer />
            <StickyPane>
              <Timeline />
            </StickyPane>
            <PanelHost />
          </>
        )}
      </main>
      <CausePageDialog />
      <TerminalDialog />
      <LiveRegion />
      <KeyboardHelp>
        <p class="muted">
          In the heatmap and the sub-second view (Tab to them): arrows move a cell, Shift and arrows widen, Enter
          selects, Escape leaves. In the flame graph: arrows go along the stack and the row, Enter zooms, Backspace
          zooms out, m opens the menu; f zooms to a frame, s shows its callers and callees, e outlines all its places, h
          hides it, w paints when it ran, c copies its stack, o filters by it; t shows stacks, i the inverted tree. In
          the search box Enter goes to the next match, Shift and Enter to the previous.
        </p>
        <p class="muted">
          With the mouse: drag selects time × cores, click selects one cell, Ctrl and the wheel zooms, Shift and
          drag pans.
        </p>
      </KeyboardHelp>
    </>
  );
}
