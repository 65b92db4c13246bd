/** What stands beside the open panel on a wide screen: the diagnosis of what is looked at. */
import type { ComponentType } from "preact";
import type { PanelProps } from "./panel";

export const Aside: ComponentType<PanelProps> = () => null;
