/** Which rows of a long table are drawn: those in sight and some around them. Pure. */
export interface RowRange {
  first: number;
  /** Not drawn itself. */
  end: number;
}

/** So many rows at a time come and go: not every pixel that is scrolled draws the table again. */
const CHUNK = 4;

export function visibleRows(scrolled: number, height: number, rowHeight: number, count: number): RowRange {
  const top = Math.floor(scrolled / rowHeight / CHUNK) * CHUNK;
  const bottom = Math.ceil((scrolled + height) / rowHeight / CHUNK) * CHUNK;
  return { first: clamp(top - CHUNK, count), end: clamp(bottom + CHUNK, count) };
}

function clamp(row: number, count: number): number {
  return Math.max(0, Math.min(count, row));
}
