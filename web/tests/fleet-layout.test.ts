import { describe, expect, it } from "vitest";
import type { Group } from "../src/fleet/grouping";
import { corner, layOut, moved, placeAt, placeOf } from "../src/fleet/layout";

function group(...nodes: number[]): Group {
  return { value: "v", merged: 1, nodes: Uint32Array.from(nodes), silent: 0, worst: 0, worstNode: 0, affected: 0 };
}

function sized(...sizes: number[]): Group[] {
  let next = 0;
  return sizes.map((size) => group(...Array.from({ length: size }, () => next++)));
}

describe("layout", () => {
  it.each([
    [[10_000], 1200, 560],
    [[3334, 3333, 3333], 1000, 560],
    [Array.from({ length: 40 }, () => 250), 1000, 900],
    [[5], 374, 560],
  ])("has a place for every node that leads back to it", (sizes, width, room) => {
    const groups = sized(...sizes);
    const layout = layOut(groups, width, room, 0);
    groups.forEach((each, i) => {
      for (let position = 0; position < each.nodes.length; position += 17) {
        const { x, y } = corner(layout, { group: i, position });
        expect(x + layout.size).toBeLessThanOrEqual(width);
        expect(y + layout.size).toBeLessThanOrEqual(Math.max(layout.height, y + layout.size));
        expect(placeAt(layout, groups, x + 1, y + 1)).toEqual({ group: i, position });
      }
    });
  });

  it("takes the largest cells that fit", () => {
    const few = layOut(sized(30, 30), 1000, 560, 0);
    const many = layOut(sized(5000, 5000), 1000, 560, 0);
    expect(few.size).toBeGreaterThan(many.size);
    expect(many.height).toBeLessThanOrEqual(560);
  });

  it("keeps bands apart, and has room for labels above them", () => {
    const layout = layOut(sized(10, 10, 10), 374, 1400, 24);
    layout.bands.slice(1).forEach((band, i) => {
      expect(band.top).toBeGreaterThanOrEqual(layout.bands[i].top + layout.bands[i].height + 24);
    });
    expect(layout.bands[0].top).toBe(24);
  });

  it("has nothing between cells", () => {
    const groups = sized(3, 3);
    const layout = layOut(groups, 1000, 560, 0);
    expect(placeAt(layout, groups, layout.size * 3 + 1, 1)).toBeNull();
    expect(placeAt(layout, groups, 1, layout.bands[1].top - 1)).toBeNull();
    expect(placeAt(layout, groups, -1, 1)).toBeNull();
    expect(layOut([], 1000, 560, 0).height).toBe(0);
  });
});

describe("the cursor", () => {
  const groups = sized(7, 5);
  // Three cells in a row.
  const layout = { ...layOut(groups, 1000, 560, 0), columns: 3 };
  const from = (group: number, position: number, right: number, down: number): [number, number] => {
    const place = moved(layout, groups, { group, position }, right, down);
    return [place.group, place.position];
  };

  it("goes along rows, and on into the next group", () => {
    expect(from(0, 0, 1, 0)).toEqual([0, 1]);
    expect(from(0, 6, 1, 0)).toEqual([1, 0]);
    expect(from(1, 0, -1, 0)).toEqual([0, 6]);
    expect(from(0, 0, -1, 0)).toEqual([0, 0]);
    expect(from(1, 4, 1, 0)).toEqual([1, 4]);
  });

  it("goes up and down by rows, into the same column of another group", () => {
    expect(from(0, 1, 0, 1)).toEqual([0, 4]);
    expect(from(0, 4, 0, 1)).toEqual([0, 6]);
    expect(from(0, 6, 0, 1)).toEqual([1, 0]);
    expect(from(1, 1, 0, -1)).toEqual([0, 6]);
    expect(from(1, 0, 0, -1)).toEqual([0, 6]);
    expect(from(0, 1, 0, -1)).toEqual([0, 1]);
    expect(from(1, 3, 0, 1)).toEqual([1, 3]);
  });

  it("finds a node", () => {
    expect(placeOf(groups, 8)).toEqual({ group: 1, position: 1 });
    expect(placeOf(groups, 99)).toBeNull();
  });
});
