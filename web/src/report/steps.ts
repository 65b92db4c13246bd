/** Values over time as the path of a filled step chart. Pure. */

/** A value (below 0: not recorded, left out) and the width that it stands for. */
export type Point = readonly [value: number, width: number];

/** A path in a box as wide as all points together and `height` high; `most` reaches its top. */
export function stepPath(points: readonly Point[], most: number, height: number): string {
  const parts: string[] = [];
  let x = 0;
  let open = false;
  for (const [value, width] of points) {
    if (value < 0) {
      if (open) parts.push(`V${height}Z`);
      open = false;
    } else {
      const y = round(height - (most > 0 ? (Math.min(value, most) / most) * height : 0));
      parts.push(open ? `V${y}` : `M${round(x)} ${height}V${y}`, `H${round(x + width)}`);
      open = true;
    }
    x += width;
  }
  if (open) parts.push(`V${height}Z`);
  return parts.join("");
}

export function totalWidth(points: readonly Point[]): number {
  return points.reduce((sum, [, width]) => sum + width, 0);
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
