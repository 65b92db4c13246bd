import { describe, expect, it } from "vitest";
import { clusters, mostSevere, type Placed } from "../src/timeline/clusters";
import {
  cellOf,
  heatPixels,
  labelledRows,
  paintPixels,
  pooledHeat,
  rowsFor,
  worstByState,
  worstCells,
} from "../src/timeline/heat";
import { cpusOf, rowAt, snapped } from "../src/timeline/heatpointer";
import { runsOf } from "../src/timeline/boxes";
import { greatest, lastAt, linesOf } from "../src/timeline/lines";
import type { Theme } from "../src/theme";
import type { CoreGrid, LaneSeries } from "../src/types";

const theme: Theme = {
  dark: false,
  ground: [240, 240, 240],
  ink: [0, 0, 0],
  muted: "#555555",
  line: "#cccccc",
  hatch: "#aaaaaa",
  accent: "#0b5cad",
  unchanged: "#d8d8d4",
};

function gridOf(cpus: number[], cells: number, spikes: Record<string, [number, number]>): CoreGrid {
  const grid: CoreGrid = {
    since: 0,
    until: cells * 1000,
    cells,
    cpus,
    measure: "busy",
    full: 250,
    unrecorded: 255,
    states: ["user", "system", "irq", "softirq", "iowait", "steal"],
    values: new Uint8Array(cpus.length * cells),
    dominant: new Uint8Array(cpus.length * cells),
  };
  for (const [place, [value, state]] of Object.entries(spikes)) {
    const [cpu, cell] = place.split(":").map(Number);
    grid.values[cpus.indexOf(cpu) * cells + cell] = value;
    grid.dominant[cpus.indexOf(cpu) * cells + cell] = state;
  }
  return grid;
}

const many = Array.from({ length: 1000 }, (_, cpu) => cpu);

describe("rows", () => {
  it("are one core each while there are pixels, else several", () => {
    expect(rowsFor([0, 1]).height).toBe(24);
    expect(rowsFor(many.slice(0, 96))).toMatchObject({ height: 3 });
    const pooled = rowsFor(many);
    expect(pooled.cpus.length).toBeLessThanOrEqual(288);
    expect(pooled.cpus.flat()).toEqual(many);
  });

  it("show one bad cell of a thousand cores", () => {
    const grid = gridOf(many, 3, { "777:1": [240, 1] });
    const rows = rowsFor(many);
    const pixels = heatPixels(grid, pooledHeat(grid, rows), theme);
    const quiet = pixels[0];
    const marked = [...pixels.keys()].filter((i) => pixels[i] !== quiet);
    expect(marked).toHaveLength(1);
    expect(rows.cpus[Math.floor(marked[0] / 3)]).toContain(777);
  });

  it("have round numbers, apart from each other", () => {
    const labels = (cpus: number[]): number[] => labelledRows(rowsFor(cpus)).map(({ cpu }) => cpu);
    expect(labels(many.slice(0, 96))).toEqual([0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
    expect(labels([0, 1])).toEqual([0, 1]);
    expect(labels([39, 41])).toEqual([39, 41]);
    expect(labels(many.slice(0, 400))).toEqual([0, 50, 100, 150, 200, 250, 300, 350]);
  });

  it("are found from the pointer, and back from a selection", () => {
    const rows = rowsFor([0, 1, 2, 5]);
    expect(rowAt(25, rows)).toBe(1);
    expect(rowAt(9999, rows)).toBe(3);
    expect(cpusOf({ since: 0, until: 1, firstRow: 2, lastRow: 3 }, rows)).toEqual([2, 5]);
    expect(cpusOf({ since: 0, until: 1, firstRow: 0, lastRow: 3 }, rows)).toBeNull();
    expect(runsOf(rows, [0, 1, 5])).toEqual([
      [0, 1],
      [3, 3],
    ]);
    expect(runsOf(rows, null)).toEqual([[0, 3]]);
  });
});

describe("cells", () => {
  it("that were not recorded are transparent, idle ones are not", () => {
    const grid = gridOf([0], 2, { "0:1": [255, 0] });
    const pixels = heatPixels(grid, pooledHeat(grid, rowsFor([0])), theme);
    expect(pixels[0] >>> 24).toBe(255);
    expect(pixels[1]).toBe(0);
    expect(cellOf(grid, 0, 1500)?.share).toBeNull();
    expect(cellOf(grid, 0, 500)?.share).toBe(0);
    expect(cellOf(grid, 0, 2500)).toBeNull();
    expect(cellOf(grid, 9, 500)).toBeNull();
  });

  it("of a core that the grid doesn't know are hatched", () => {
    const grid = gridOf([0], 1, {});
    const pixels = heatPixels(grid, pooledHeat(grid, rowsFor([0, 1])), theme);
    expect([...pixels].map((pixel) => pixel >>> 24)).toEqual([255, 0]);
  });

  it("with the least of something differ from idle", () => {
    const grid = gridOf([0], 2, { "0:1": [1, 0] });
    const pixels = heatPixels(grid, pooledHeat(grid, rowsFor([0])), theme);
    expect(pixels[1]).not.toBe(pixels[0]);
  });

  it("are painted only where the frame ran, the stronger the more", () => {
    const grid = gridOf([0], 3, { "0:1": [50, 0], "0:2": [250, 0] });
    const alphas = [...paintPixels(grid, pooledHeat(grid, rowsFor([0])), theme)].map((pixel) => pixel >>> 24);
    expect(alphas[0]).toBe(0);
    expect(alphas[1]).toBeGreaterThan(80);
    expect(alphas[2]).toBe(255);
  });

  it("are ranked by peaks, what the kernel does first", () => {
    const spikes = { "0:1": [250, 0], "1:3": [240, 1], "1:4": [245, 1], "1:5": [241, 1] } as const;
    const grid = gridOf([0, 1], 8, spikes as unknown as Record<string, [number, number]>);
    const worst = worstCells(grid, { since: 0, until: 8000 }, 10);
    expect(worst.map((cell) => [cell.cpu, cell.since, cell.state])).toEqual([
      [1, 4000, "system"],
      [0, 1000, "user"],
    ]);
    expect(worstCells(grid, { since: 6000, until: 8000 }, 10)).toEqual([]);
  });

  it("are summed up by state for the overview", () => {
    const grid = gridOf([0, 1], 2, { "0:0": [200, 0], "1:0": [90, 1], "0:1": [255, 0], "1:1": [255, 0] });
    const worst = worstByState(grid);
    expect([worst[0][0], worst[1][0]]).toEqual([200, 90]);
    expect(worst.every((values) => values[1] === -1)).toBe(true);
  });

  it("are taken whole by a selection, at least one", () => {
    const grid = gridOf([0], 10, {});
    expect(snapped(1200, 1300, grid)).toEqual({ since: 1000, until: 2000 });
    expect(snapped(4500, 2200, grid)).toEqual({ since: 2000, until: 5000 });
    expect(snapped(-500, 99_000, grid)).toEqual({ since: 0, until: 10_000 });
  });
});

describe("marks", () => {
  it("that would lie on each other become one, the mostSevere in front", () => {
    const placed: Placed<{ severity: string | null }>[] = [
      { x: 5, item: { severity: "info" } },
      { x: 9, item: { severity: "critical" } },
      { x: 60, item: { severity: null } },
    ];
    const found = clusters(placed, 100, 11);
    expect(found.map((each) => [each.x, each.items.length, each.room])).toEqual([
      [5, 2, 55],
      [60, 1, 40],
    ]);
    expect(mostSevere(found[0].items).severity).toBe("critical");
  });

  it("near the end of the lane have their label at the left, where that is free", () => {
    const at = (...places: number[]): { left: boolean; room: number }[] =>
      clusters(places.map((x) => ({ x, item: null })), 1200, 11);
    expect(at(100, 1150)[1]).toMatchObject({ left: true, room: 525 });
    expect(at(100, 1000, 1150)[2]).toMatchObject({ left: false, room: 50 });
    expect(at(100)[0]).toMatchObject({ left: false, room: 1100 });
    expect(at(900)[0]).toMatchObject({ left: true, room: 900 });
  });

  it("at the end of the lane are one with those that they would be moved onto", () => {
    const at = (...places: number[]): number[] =>
      clusters(places.map((x) => ({ x, item: null })), 300, 24).map((each) => each.x);
    expect(at(270, 299)).toEqual([270]);
    expect(at(250, 299)).toEqual([250, 288]);
  });
});

describe("lines", () => {
  const lane = {
    name: "memcgs",
    title: "",
    unit: "",
    series: [{ name: "a", title: "a", values: [1, null, 5, null, null, 2] }],
  };

  it("join what was measured, and break where nothing was recorded", () => {
    const window = { since: 0, until: 6000, cells: 6 };
    expect(linesOf(lane, window, []).values).toEqual([[1, 5, 2]]);
    const broken = linesOf(lane, window, [[3000, 5000]]);
    expect(broken.values).toEqual([[1, 5, null, 2]]);
    expect(lastAt(broken, 0, 2600)?.value).toBe(5);
    expect(lastAt(broken, 0, 100)).toBeNull();
    expect(greatest(broken, 0, { since: 0, until: 6000 })).toBe(5);
    expect(greatest(broken, 0, { since: 3000, until: 4000 })).toBeNull();
  });

  it("cross a view in which nothing was measured, unless the recording broke off", () => {
    const series: LaneSeries = { name: "a", title: "a", values: [null], before: [500, 3], after: [9500, 7] };
    const rare = { ...lane, series: [series] };
    const window = { since: 4000, until: 5000, cells: 1 };
    expect(linesOf(rare, window, [])).toEqual({ times: [500, 9500], values: [[3, 7]] });
    expect(lastAt(linesOf(rare, window, []), 0, 5000)).toEqual({ at: 500, value: 3 });
    expect(linesOf(rare, window, [[1000, 2000]]).values).toEqual([[3, null, 7]]);
    expect(linesOf(rare, window, [[100, 200]]).values).toEqual([[3, 7]]);
  });
});
