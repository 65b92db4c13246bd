import { describe, expect, it } from "vitest";
import {
  requested,
  busiest,
  cellAt,
  countOf,
  covered,
  fitting,
  isMissing,
  MOST_COLUMNS,
  offsetTicks,
  scaleOf,
  spanOf,
  startOf,
  stateOf,
  stepped,
  strengthOf,
} from "../src/panels/offsets";
import type { Subsecond } from "../src/types";

/** Four seconds from 10,000 ms in columns of a second, ten rows each. */
function grid(filled: Record<string, number> = {}): Subsecond {
  const counts = new Uint32Array(40);
  for (const [cell, count] of Object.entries(filled)) {
    const [column, row] = cell.split(",").map(Number);
    counts[column * 10 + row] = count;
  }
  const size = { since: 10_000, from: 10_000, until: 14_000, column_ms: 1000, rows: 10, columns: 4 };
  const samples = counts.reduce((sum, each) => sum + each, 0);
  return { ...size, most: Math.max(...counts), samples, counts, kernel: new Uint32Array(40) };
}

/** The same, with a count in every cell. */
function full(count: (place: number) => number): Subsecond {
  return grid(Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`${Math.floor(i / 10)},${i % 10}`, count(i)])));
}

describe("the width of a column", () => {
  it("is what was requested for, while there is room", () => {
    expect(fitting({ since: 0, until: 60_000 }, 1000)).toBe(1000);
    expect(fitting({ since: 0, until: 60_000 }, 100)).toBe(100);
  });

  it("doubles until all columns fit", () => {
    const hour = { since: 0, until: 3_600_000 };
    expect(fitting(hour, 1000)).toBe(2000);
    expect(3_600_000 / fitting(hour, 100)).toBeLessThanOrEqual(MOST_COLUMNS);
  });

  it("has bounds", () => {
    expect(fitting({ since: 0, until: 1000 }, 10)).toBe(100);
    expect(fitting({ since: 0, until: 1000 * 3_600_000 }, 1000)).toBe(60_000);
  });
});

describe("a cell", () => {
  it("begins when its part of the second does", () => {
    expect(startOf(grid(), { column: 2, row: 3 })).toBe(12_300);
    expect(countOf(grid({ "2,3": 7 }), { column: 2, row: 3 })).toBe(7);
  });

  it("is found where it is drawn: time runs up", () => {
    expect(cellAt(grid(), 0, 0.999)).toEqual({ column: 0, row: 0 });
    expect(cellAt(grid(), 0.6, 0)).toEqual({ column: 2, row: 9 });
    expect(cellAt(grid(), 1.5, -0.2)).toEqual({ column: 3, row: 9 });
    expect(cellAt(grid(), -1, 3)).toEqual({ column: 0, row: 0 });
  });
});

describe("a selection", () => {
  it("goes from the earlier cell to the end of the later, whichever was first", () => {
    const [one, other] = [
      { column: 1, row: 8 },
      { column: 2, row: 1 },
    ];
    expect(spanOf(grid(), one, other)).toEqual({ since: 11_800, until: 12_200 });
    expect(spanOf(grid(), other, one)).toEqual({ since: 11_800, until: 12_200 });
  });

  it("of one cell is that cell, and never empty or outside", () => {
    expect(spanOf(grid(), { column: 3, row: 9 }, { column: 3, row: 9 })).toEqual({ since: 13_900, until: 14_000 });
    const fine = { ...grid(), rows: 4000, columns: 4 };
    const span = spanOf(fine, { column: 0, row: 1 }, { column: 0, row: 1 });
    expect(span.until).toBeGreaterThan(span.since);
  });
});

describe("by keyboard", () => {
  it("the end of a column leads to the start of the next", () => {
    expect(stepped(grid(), { column: 1, row: 9 }, 0, 1)).toEqual({ column: 2, row: 0 });
    expect(stepped(grid(), { column: 1, row: 0 }, 0, -1)).toEqual({ column: 0, row: 9 });
    expect(stepped(grid(), { column: 1, row: 4 }, 1, 0)).toEqual({ column: 2, row: 4 });
  });

  it("the ends hold", () => {
    expect(stepped(grid(), { column: 3, row: 9 }, 0, 1)).toEqual({ column: 3, row: 9 });
    expect(stepped(grid(), { column: 0, row: 0 }, 0, -1)).toEqual({ column: 0, row: 0 });
  });
});

describe("the colour of a cell", () => {
  it("is of the state that most of its samples have", () => {
    const mixed = { ...grid({ "1,2": 10 }), kernel: new Uint32Array(40) };
    const cell = { column: 1, row: 2 };
    expect(stateOf(mixed, cell)).toBe("user");
    mixed.kernel[12] = 6;
    expect(stateOf(mixed, cell)).toBe("system");
  });

  it("is an even tone where steady work scatters, and differs where a stripe is", () => {
    // About 90 samples, by up to their square root more or less; one cell has half of that.
    const steady = full((i) => (i === 7 ? 45 : 90 + ((i * 7) % 19) - 9));
    const scale = scaleOf(steady);
    const strengths = [81, 99].map((count) => strengthOf(count, scale));
    expect(strengths[1] - strengths[0]).toBeLessThan(0.4);
    expect(strengthOf(45, scale)).toBeLessThan(0.1);
  });

  it("is full where a core was never idle, and of bursts not of one cell alone", () => {
    const busy = full(() => 2);
    expect(strengthOf(2, scaleOf(busy))).toBe(1);
    const burst = { ...full((i) => 10 + (i % 3)), most: 5000 };
    burst.counts[3] = 5000;
    expect(scaleOf(burst).full).toBeLessThan(50);
    expect(strengthOf(5000, scaleOf(burst))).toBe(1);
  });

  it("of nothing is nothing", () => {
    expect(strengthOf(0, scaleOf(grid()))).toBe(0);
    expect(strengthOf(1, scaleOf(grid({ "0,0": 1 })))).toBe(1);
  });
});

describe("the busiest cells", () => {
  it("come with the most first, without empty ones", () => {
    expect(busiest(grid({ "0,1": 3, "3,2": 9, "2,2": 3 }), 12)).toEqual([
      { column: 3, row: 2 },
      { column: 0, row: 1 },
      { column: 2, row: 2 },
    ]);
    expect(busiest(grid({ "0,1": 3, "3,2": 9 }), 1)).toEqual([{ column: 3, row: 2 }]);
    expect(busiest(grid(), 12)).toEqual([]);
  });
});

describe("what is marked", () => {
  it("is what is taken: from one cell to another, across the columns between", () => {
    const [late, early] = [
      { column: 2, row: 3 },
      { column: 0, row: 8 },
    ];
    const marked = covered(grid(), late, early);
    expect(marked).toEqual([
      { column: 0, firstRow: 8, lastRow: 9 },
      { column: 1, firstRow: 0, lastRow: 9 },
      { column: 2, firstRow: 0, lastRow: 3 },
    ]);
    const cells = marked.reduce((sum, { firstRow, lastRow }) => sum + lastRow - firstRow + 1, 0);
    const { since, until } = spanOf(grid(), late, early);
    expect(until - since).toBe(cells * 100);
  });

  it("distinguishes what was not recorded from idle time", () => {
    expect(isMissing(grid(), { column: 1, row: 5 }, [[11_500, 12_000]])).toBe(true);
    expect(isMissing(grid(), { column: 2, row: 0 }, [[11_500, 12_000]])).toBe(false);
  });
});

describe("the offsets next to a column", () => {
  it("are round, few, and reach its end", () => {
    expect(offsetTicks(1000)).toEqual([0, 200, 400, 600, 800, 1000]);
    expect(offsetTicks(100)).toEqual([0, 20, 40, 60, 80, 100]);
    expect(offsetTicks(2000)).toEqual([0, 500, 1000, 1500, 2000]);
    expect(offsetTicks(60_000)).toEqual([0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]);
    expect(offsetTicks(4000).length).toBeLessThanOrEqual(7);
  });
});

describe("a time that begins within a second", () => {
  const inside = { ...grid(), from: 10_250, until: 13_500 };

  it("leaves out what is before and after it", () => {
    expect(requested(grid())).toEqual([
      { column: 0, row: 0 },
      { column: 3, row: 9 },
    ]);
    expect(requested(inside)).toEqual([
      { column: 0, row: 2 },
      { column: 3, row: 4 },
    ]);
  });

  it("is not left by a selection in it", () => {
    expect(spanOf(inside, { column: 0, row: 0 }, { column: 3, row: 9 })).toEqual({ since: 10_250, until: 13_500 });
  });
});
