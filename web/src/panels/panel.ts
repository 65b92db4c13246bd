/** The interface of a panel below the timeline. */
import type { ComponentType } from "preact";
import type { Tab } from "../address";
import type { Analysed } from "../state";

export interface PanelProps {
  /** The selection, else what the timeline shows. The same object while it is equal. */
  of: Analysed;
}

export interface Panel {
  tab: Tab;
  title: string;
  /** The key that opens it. */
  key: string;
  Body: ComponentType<PanelProps>;
  /** Controls at the right of the tabs while it is open. */
  Tools?: ComponentType<PanelProps>;
}
