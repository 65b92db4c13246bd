/** Every panel, in the order of its tab. */
import { eventsPanel } from "./events";
import type { Panel } from "./panel";

export const PANELS: readonly Panel[] = [eventsPanel];
