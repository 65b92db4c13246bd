/** The timeline: every lane over one time axis. */
import type { JSX } from "preact";

export function Timeline(): JSX.Element {
  return <section class="timeline" aria-label="timeline" />;
}
