/** Clusters marks that would overlap; labels are placed where there is room. Pure. */

/** A mark is at least this wide, so that it can be hit; nearer ones are one mark. */
export const MARK_PX = 24;

/** The sign of each severity, on the timeline and in tables. */
export const GLYPHS: Record<string, string> = { critical: "◆", warning: "▲", info: "○" };

/** Where the middle of a mark stands, for its style. */
export function markStyle(of: { x: number; room: number; left: boolean }, width: number): Record<string, string> {
  const side: Record<string, string> = of.left ? { right: `${width - of.x}px` } : { left: `${of.x}px` };
  return { ...side, maxWidth: `${Math.max(MARK_PX, of.room)}px` };
}

export interface Placed<Item> {
  x: number;
  item: Item;
}

export interface Cluster<Item> {
  x: number;
  items: Item[];
  /** Pixels to the next cluster (or the end of the lane) in which a label may stand. */
  room: number;
  /** The label stands at the left: near the end of the lane, where that side is free. */
  left: boolean;
}

/** With less room than this at the right a label looks to the left, if the mark before is as far as this. */
const TIGHT = 330;
const FREE = 520;

/** Marks that are nearer than `apart` become one; the last one does not leave the lane by more than half of that. */
export function clusters<Item>(placed: Placed<Item>[], width: number, apart: number): Cluster<Item>[] {
  const found: Cluster<Item>[] = [];
  for (const { x: wanted, item } of [...placed].sort((a, b) => a.x - b.x)) {
    const x = Math.min(wanted, width - apart / 2);
    const last = found.at(-1);
    if (last && x - last.x < apart) last.items.push(item);
    else found.push({ x, items: [item], room: 0, left: false });
  }
  found.forEach((cluster, i) => {
    cluster.room = (i + 1 < found.length ? found[i + 1].x : width) - cluster.x;
    const before = i > 0 ? cluster.x - found[i - 1].x : 0;
    // The label of the mark before may fill half of what is between; before the first there is nothing.
    const free = i > 0 ? (before > FREE ? before / 2 : 0) : cluster.x;
    if (i + 1 === found.length && cluster.room < TIGHT && free > cluster.room) {
      cluster.left = true;
      cluster.room = free;
    }
  });
  return found;
}

const SEVERITY_RANK: Record<string, number> = { critical: 3, warning: 2, info: 1 };

/** The item that matters most. */
export function mostSevere<Item extends { severity: string | null }>(items: Item[]): Item {
  return items.reduce((worst, each) => (severityRank(each.severity) > severityRank(worst.severity) ? each : worst));
}

function severityRank(severity: string | null): number {
  return SEVERITY_RANK[severity ?? ""] ?? 0;
}
