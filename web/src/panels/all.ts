/** Every panel, in the order of its tab. */
import { diagnosisPanel } from "./diagnosis";
import { eventsPanel } from "./events";
import { differencePanel, flamePanel } from "./flame/panel";
import { interruptsPanel } from "./interrupts";
import type { Panel } from "./panel";
import { processesPanel } from "./processes";
import { subsecondPanel } from "./subsecond";

export const PANELS: readonly Panel[] = [
  flamePanel,
  differencePanel,
  subsecondPanel,
  processesPanel,
  eventsPanel,
  diagnosisPanel,
  interruptsPanel,
];
