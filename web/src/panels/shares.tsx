/** Shares of a row in a ranking: as a bar, and by core. */
import type { JSX } from "preact";
import { percent } from "../format";

const SHOWN_CORES = 6;

/** The share as a bar. */
export function ShareBar({ share }: { share: number }): JSX.Element {
  return (
    <i class="bar" aria-hidden="true">
      <i style={{ width: `${Math.max(1, 100 * share)}%` }} />
    </i>
  );
}

/** The cores with the largest shares of `total`; `perCpu` has them first. */
export function CoreShares({ perCpu, total }: { perCpu: [number, number][]; total: number }): JSX.Element {
  const left = perCpu.length - SHOWN_CORES;
  return (
    <span class="core-shares">
      {perCpu.slice(0, SHOWN_CORES).map(([cpu, value]) => (
        <span key={cpu}>
          {cpu}: {percent(total > 0 ? value / total : 0)}
        </span>
      ))}
      {left > 0 && <span class="muted">and {left} more</span>}
    </span>
  );
}
