import { describe, expect, it } from "vitest";
import { changeOf, coreStrip, kernelShare, sortedRows, sparkline, STRIP_LEVELS } from "../src/panels/process-rows";
import { visibleRows } from "../src/panels/visible-rows";
import type { Processes, ProcessUse } from "../src/types";

function row(comm: string, seconds: number, more: Partial<ProcessUse> = {}): ProcessUse {
  return { comm, seconds, kernel_seconds: 0, before_seconds: 0, processes: 1, ...more } as ProcessUse;
}

const FOUND = {
  by: "program",
  seconds: 10,
  before_seconds: 60,
  processes: [
    row("cc1", 8, { kernel_seconds: 1, before_seconds: 60, processes: 300 }),
    row("kubelet", 5, { kernel_seconds: 5, before_seconds: 3 }),
    row("apt", 1, { before_seconds: 0 }),
  ],
} as Processes;

function order(by: Parameters<typeof sortedRows>[1], ascending = false): string[] {
  return sortedRows(FOUND, by, ascending).map((each) => each.comm);
}

describe("rows of the process table", () => {
  it("are sorted by each column, both ways", () => {
    expect(order("cpu")).toEqual(["cc1", "kubelet", "apt"]);
    expect(order("kernel")).toEqual(["kubelet", "cc1", "apt"]);
    expect(order("change")).toEqual(["kubelet", "apt", "cc1"]);
    expect(order("processes")).toEqual(["cc1", "kubelet", "apt"]);
    expect(order("name", true)).toEqual(["apt", "cc1", "kubelet"]);
    for (const by of ["cpu", "change", "name"] as const) expect(order(by, true)).toEqual(order(by).reverse());
  });

  it("keep the order of the CPU time among equals, and the server's list as it is", () => {
    const before = [...FOUND.processes];
    expect(order("processes", true)).toEqual(["kubelet", "apt", "cc1"]);
    expect(FOUND.processes).toEqual(before);
  });

  it("change in cores, whatever the lengths of both times", () => {
    expect(changeOf(FOUND.processes[0], FOUND)).toBeCloseTo(0.8 - 1);
    expect(changeOf(FOUND.processes[1], FOUND)).toBeCloseTo(0.5 - 0.05);
    expect(changeOf(row("x", 1, { before_seconds: null }), FOUND)).toBeNull();
    expect(changeOf(FOUND.processes[0], { ...FOUND, before_seconds: 0 })).toBeNull();
    expect([kernelShare(FOUND.processes[0]), kernelShare(row("idle", 0))]).toEqual([1 / 8, 0]);
  });
});

describe("the line over time", () => {
  it("goes from left to right, the greatest at the top", () => {
    expect(sparkline([0, 2, 1, 0])).toBe("M0 1H0.25L0.25 0H0.5L0.5 0.5H0.75L0.75 1H1");
  });

  it("is not drawn without time", () => {
    expect(sparkline([0, 0])).toBe("");
    expect(sparkline([])).toBe("");
  });
});

describe("the strip of cores", () => {
  it("has each core once, the stronger the more of its time", () => {
    const paths = coreStrip([[39, 10], [0, 0.01], [3, 5], [7, 0]], 10);
    expect(paths).toHaveLength(STRIP_LEVELS);
    expect(paths[STRIP_LEVELS - 1]).toBe("M39 0h1v1h-1z");
    expect(paths[0]).toBe("M0 0h1v1h-1z");
    expect(paths[2]).toBe("M3 0h1v1h-1z");
    expect(paths.join("")).not.toContain("M7 ");
  });
});

describe("the rows in sight", () => {
  it("are drawn with some around them, and few of thousands", () => {
    for (const scrolled of [0, 1, 4321, 42 * 5000 - 600]) {
      const { first, end } = visibleRows(scrolled, 600, 42, 5000);
      expect(first * 42).toBeLessThanOrEqual(scrolled);
      expect(end * 42).toBeGreaterThanOrEqual(Math.min(scrolled + 600, 5000 * 42));
      expect(end - first).toBeLessThan(80);
    }
  });

  it("stay the same while little is scrolled, and end with the table", () => {
    expect(visibleRows(4300, 600, 42, 5000)).toEqual(visibleRows(4310, 600, 42, 5000));
    expect(visibleRows(0, 600, 42, 3)).toEqual({ first: 0, end: 3 });
    expect(visibleRows(0, 600, 42, 0)).toEqual({ first: 0, end: 0 });
  });
});
