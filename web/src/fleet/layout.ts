/** Where each node is drawn: a band for each group, cells in rows from left to right. Pure. */
import type { Group } from "./grouping";

export interface Band {
  /** Of its cells, in CSS pixels from the top. */
  top: number;
  height: number;
}

export interface Layout {
  /** The side of a cell with its gap, in CSS pixels. */
  size: number;
  columns: number;
  bands: Band[];
  height: number;
}

export interface Place {
  group: number;
  /** The position in the group. */
  position: number;
}

const SIZES = [22, 18, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4];
const GAP = 6;
/** A band is as high as its label. */
const LEAST_BAND = 20;

/** The largest cells that fit. `above` is the height of a label that stands above its band. */
export function layOut(groups: Group[], width: number, room: number, above: number): Layout {
  let found: Layout | null = null;
  for (const size of SIZES) {
    found = withSize(groups, width, size, above);
    if (found.height <= room) break;
  }
  return found ?? { size: SIZES[0], columns: 1, bands: [], height: 0 };
}

function withSize(groups: Group[], width: number, size: number, above: number): Layout {
  const columns = Math.max(1, Math.floor(width / size));
  const bands: Band[] = [];
  let top = 0;
  for (const group of groups) {
    const rows = Math.ceil(group.nodes.length / columns);
    const height = above > 0 ? rows * size : Math.max(LEAST_BAND, rows * size);
    bands.push({ top: top + above, height });
    top += above + height + GAP;
  }
  return { size, columns, bands, height: Math.max(0, top - GAP) };
}

/** The top left corner of a cell. */
export function corner(layout: Layout, { group, position }: Place): { x: number; y: number } {
  const row = Math.floor(position / layout.columns);
  return { x: (position - row * layout.columns) * layout.size, y: layout.bands[group].top + row * layout.size };
}

/** The cell at a point; null between cells. */
export function placeAt(layout: Layout, groups: Group[], x: number, y: number): Place | null {
  const group = layout.bands.findIndex((band) => y >= band.top && y < band.top + band.height);
  const column = Math.floor(x / layout.size);
  if (group < 0 || column < 0 || column >= layout.columns) return null;
  const position = Math.floor((y - layout.bands[group].top) / layout.size) * layout.columns + column;
  return position < groups[group].nodes.length ? { group, position } : null;
}

export function placeOf(groups: Group[], node: number): Place | null {
  for (let group = 0; group < groups.length; group++) {
    const position = groups[group].nodes.indexOf(node);
    if (position >= 0) return { group, position };
  }
  return null;
}

/** The cell next to one: along the row into the next group, or up and down by a row. */
export function moved(layout: Layout, groups: Group[], from: Place, right: number, down: number): Place {
  const last = (group: number): number => groups[group].nodes.length - 1;
  let { group } = from;
  let position = from.position + right + down * layout.columns;
  if (position < 0) {
    if (group === 0) return { group, position: down < 0 ? from.position : 0 };
    group--;
    position = down < 0 ? lastRow(layout, last(group), from.position % layout.columns) : last(group);
  } else if (position > last(from.group)) {
    const below = Math.floor(last(from.group) / layout.columns) > Math.floor(from.position / layout.columns);
    if (down > 0 && below) return { group, position: last(group) };
    if (group === groups.length - 1) return { group, position: down > 0 ? from.position : last(group) };
    group++;
    position = down > 0 ? Math.min(last(group), from.position % layout.columns) : 0;
  }
  return { group, position };
}

/** The cell of the last row in a column, or the last of all. */
function lastRow(layout: Layout, last: number, column: number): number {
  return Math.min(last, Math.floor(last / layout.columns) * layout.columns + column);
}
