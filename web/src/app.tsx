/** The page: one screen, one time axis. */
import type { JSX } from "preact";
import { LiveRegion } from "./a11y";
import { Header } from "./header";
import { KeyboardHelp } from "./keyboard";
import { Notices } from "./notices";
import { PanelHost } from "./panels/host";
import { extent } from "./state";
import { Timeline } from "./timeline/timeline";

export function App(): JSX.Element {
  return (
    <>
      <Header />
      <main>
        <Notices />
        {extent.value && (
          <>
            <Timeline />
            <PanelHost />
          </>
        )}
      </main>
      <LiveRegion />
      <KeyboardHelp />
    </>
  );
}
