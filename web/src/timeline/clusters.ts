/** Marks on a lane that would lie on each other become one; labels stand where there is room. Pure. */

export interface Placed<Item> {
  x: number;
  item: Item;
}

export interface Cluster<Item> {
  x: number;
  items: Item[];
  /** Pixels to the next cluster (or the end of the lane) in which a label may stand. */
  room: number;
}

export function clusters<Item>(placed: Placed<Item>[], width: number, apart: number): Cluster<Item>[] {
  const found: Cluster<Item>[] = [];
  for (const { x, item } of [...placed].sort((a, b) => a.x - b.x)) {
    const last = found.at(-1);
    if (last && x - last.x < apart) last.items.push(item);
    else found.push({ x, items: [item], room: 0 });
  }
  found.forEach((cluster, i) => {
    cluster.room = (i + 1 < found.length ? found[i + 1].x : width) - cluster.x;
  });
  return found;
}

const GRAVITY: Record<string, number> = { critical: 3, warning: 2, info: 1 };

/** The item that matters most. */
export function gravest<Item extends { severity: string | null }>(items: Item[]): Item {
  return items.reduce((worst, each) => (gravity(each.severity) > gravity(worst.severity) ? each : worst));
}

function gravity(severity: string | null): number {
  return GRAVITY[severity ?? ""] ?? 0;
}
