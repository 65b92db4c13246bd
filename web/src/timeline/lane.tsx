/** One lane: its name at the left, its content over the time axis. */
import type { ComponentChildren, JSX } from "preact";

export function Lane(props: {
  name: string;
  title: ComponentChildren;
  aside?: ComponentChildren;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <div class={`lane lane-${props.name}`} role="group" aria-label={props.name}>
      <div class="lane-title" title={typeof props.aside === "string" ? props.aside : undefined}>
        {props.title}
        {props.aside && <small>{props.aside}</small>}
      </div>
      <div class="lane-plot">{props.children}</div>
    </div>
  );
}
