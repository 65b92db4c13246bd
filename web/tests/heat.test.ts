import { describe, expect, it } from "vitest";
import { clusters, mostSevere, type Placed } from "../src/timeline/clusters";
import {
  cellOf,
  cellSpan,
  cellsOf,
  heatPixels,
  heightOf,
  isFlat,
  labelledRows,
  paintPixels,
  pooledHeat,
  rowAt,
  rowsFor,
  sortedByWorst,
  valueText,
  worstByState,
  worstCells,
  worstOf,
} from "../src/timeline/heat";
import { cpusOf, snapped } from "../src/timeline/heatpointer";
import { runsOf } from "../src/timeline/boxes";
import { briefly, greatest, lastAt, linesOf, mostDeviating } from "../src/timeline/lines";
import type { Theme } from "../src/theme";
import type { CoreGrid, LaneSeries } from "../src/types";

const theme: Theme = {
  dark: false,
  page: [255, 255, 255],
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
    full: 1000,
    unrecorded: 65_535,
    states: ["user", "system", "irq", "softirq", "iowait", "steal", "wait"],
    weights: [0.55, 1, 1, 1, 1, 1, 1],
    values: new Uint16Array(cpus.length * cells),
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
    const grid = gridOf(many, 3, { "777:1": [960, 1] });
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

  it("of pinned cores are at the top, and high enough to be read", () => {
    const rows = rowsFor(many.slice(0, 96), { tallest: 200, pinned: [42, 7, 5000] });
    expect(rows.cpus.slice(0, 3)).toEqual([[42], [7], [0]]);
    expect(rows.tops.slice(0, 4)).toEqual([0, 18, 36, 38]);
    expect(rowAt(17, rows)).toBe(0);
    expect(rowAt(36, rows)).toBe(2);
    expect(heightOf(rows)).toBe(36 + 94 * 2);
    expect(labelledRows(rows).slice(0, 2)).toEqual([
      { cpu: 42, row: 0 },
      { cpu: 7, row: 1 },
    ]);
    expect(rowsFor(many.slice(0, 96), { tallest: 200, tall: true }).height).toBe(14);
  });

  it("are sorted by their worst cell in view", () => {
    const grid = gridOf([0, 1, 2, 3], 4, { "1:1": [500, 1], "2:3": [990, 1], "3:1": [800, 0] });
    expect(sortedByWorst([0, 1, 2, 3], grid, { since: 0, until: 4000 })).toEqual([2, 1, 3, 0]);
    expect(sortedByWorst([0, 1, 2, 3], grid, { since: 0, until: 2000 })).toEqual([1, 3, 0, 2]);
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
    const grid = gridOf([0], 2, { "0:1": [65_535, 0] });
    const pixels = heatPixels(grid, pooledHeat(grid, rowsFor([0])), theme);
    expect(pixels[0] >>> 24).toBe(255);
    expect(pixels[1]).toBe(0);
    expect(cellOf(grid, 0, 1500)?.value).toBeNull();
    expect(cellOf(grid, 0, 500)?.value).toBe(0);
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
    const grid = gridOf([0], 3, { "0:1": [200, 0], "0:2": [1000, 0] });
    const alphas = [...paintPixels(grid, pooledHeat(grid, rowsFor([0])), theme)].map((pixel) => pixel >>> 24);
    expect(alphas[0]).toBe(0);
    expect(alphas[1]).toBeGreaterThan(80);
    expect(alphas[2]).toBe(255);
  });

  it("are ranked by peaks, what the kernel does first", () => {
    const spikes = { "0:1": [1000, 0], "1:3": [960, 1], "1:4": [980, 1], "1:5": [964, 1] } as const;
    const grid = gridOf([0, 1], 8, spikes as unknown as Record<string, [number, number]>);
    const worst = worstCells(grid, { since: 0, until: 8000 }, 10);
    expect(worst.map((cell) => [cell.cpu, cell.since, cell.state])).toEqual([
      [1, 4000, "system"],
      [0, 1000, "user"],
    ]);
    expect(worstCells(grid, { since: 6000, until: 8000 }, 10)).toEqual([]);
  });

  it("are flat where no recorded one has a value", () => {
    const grid = gridOf([0, 1], 4, { "0:0": [65_535, 0], "1:0": [65_535, 0], "0:3": [5, 0] });
    expect(isFlat(grid, { since: 1000, until: 3000 })).toBe(true);
    expect(isFlat(grid, { since: 1000, until: 4000 })).toBe(false);
    // What was not recorded is hatched.
    expect(isFlat(grid, { since: 0, until: 1000 })).toBe(false);
  });

  it("are summed up by state for the overview", () => {
    const grid = gridOf([0, 1], 2, { "0:0": [800, 0], "1:0": [360, 1], "0:1": [65_535, 0], "1:1": [65_535, 0] });
    const worst = worstByState(grid);
    expect([worst[0][0], worst[1][0]]).toEqual([800, 360]);
    expect(worst.every((values) => values[1] === -1)).toBe(true);
  });

  it("say what their value means", () => {
    const said = (measure: string, value: number | null, state: string): string => valueText({ measure, value, state });
    expect(said("busy", 474, "user")).toBe("47 % user");
    expect(said("system", 980, "system")).toBe("98 % system");
    expect(said("stall", 600, "system")).toBe("held for 6 s by system");
    expect(said("stall", 4000, "wait")).toBe("held for at least 40 s by waiting tasks");
    expect(said("deviation", 620, "softirq")).toBe("62 points above its normal, mostly softirq");
    expect(said("unusual", 310, "system")).toBe("62 points above its normal, mostly system");
    expect(said("unusual", 800, "system")).toBe("held for 6 s by system");
    expect(said("unusual", 0, "system")).toBe("as it normally is, mostly system");
    expect(said("wait", 2500, "wait")).toBe("tasks waited 2500 ms/s");
    expect(said("matching", 87, "matching")).toBe("8.7 % matches the filter");
    expect(said("busy", null, "user")).toBe("not recorded");
  });

  it("of pooled cores have value and hue of the same one", () => {
    const grid = gridOf([0, 1], 1, { "0:0": [1000, 0], "1:0": [910, 1] });
    expect(worstOf(grid, [0, 1], 500)).toMatchObject({ cpu: 1, value: 910, state: "system" });
  });

  it("begin and end where the server counts their seconds", () => {
    expect(cellSpan({ since: 350, until: 3350, cells: 7 }, 1)).toEqual({ since: 779, until: 1208 });
    expect(cellSpan({ since: 0, until: 10_000, cells: 10 }, 3)).toEqual({ since: 3000, until: 4000 });
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

describe("cells of one length", () => {
  it("have edges at its multiples, and cover the time", () => {
    expect(cellsOf({ since: 1500, until: 4200 }, 1000)).toEqual({ since: 1000, until: 5000, cells: 4 });
    expect(cellsOf({ since: 1000, until: 1000 }, 1000).cells).toBe(1);
  });
});

describe("lines", () => {
  it("are called the same where there is little room", () => {
    expect(["tracked by the kernel", "visible as directories", "zombies"].map(briefly)).toEqual([
      "tracked",
      "visible",
      "zombies",
    ]);
    expect(["by tasks that need memory", "by kswapd"].map(briefly)).toEqual(["by tasks", "by kswapd"]);
  });

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

  it("of the lane that deviates most are opened first", () => {
    const named = (name: string, values: (number | null)[]): typeof lane => ({
      ...lane,
      name,
      series: [{ name, title: name, values }],
    });
    const busy = named("pressure", [10, 90, 20, 80, 15, 85, 10, 90]);
    const needle = named("wait", [1, 1, 2, 1, null, 1, 1, 500, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    const flat = named("memcgs", [68_000, 68_010, 68_020]);
    expect(mostDeviating([busy, needle, flat])).toBe("wait");
    expect(mostDeviating([flat, named("reclaim", [null])])).toBe("memcgs");
    expect(mostDeviating([named("reclaim", [null])])).toBeNull();
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
