import { describe, expect, it } from "vitest";
import { valueOf, type Column } from "../src/fleet/columns";
import { groupNodes, label, MAX_GROUPS, strength } from "../src/fleet/grouping";
import type { FleetMeasure } from "../src/types";

const zones: Column = { key: "zone", values: ["b", "a"], codes: Uint8Array.from([1, 2, 1, 0, 2]) };
const values = Float32Array.from([0, 3, 7, NaN, 0]);

describe("groups", () => {
  it("are in the order of their names, what is not set last", () => {
    const groups = groupNodes(zones, values, "name");
    expect(groups.map(label)).toEqual(["a", "b", "not set"]);
    expect(groups.map((each) => [...each.nodes])).toEqual([[1, 4], [0, 2], [3]]);
  });

  it("know their worst node, the silent ones and those above zero", () => {
    const [a, b, unset] = groupNodes(zones, values, "name");
    expect([a.worst, a.worstNode, a.affected, a.silent]).toEqual([3, 1, 1, 0]);
    expect([b.worst, b.worstNode, b.affected, b.silent]).toEqual([7, 2, 1, 0]);
    expect([unset.worstNode, unset.silent]).toEqual([-1, 1]);
  });

  it("are the worst first on request, and so are their nodes", () => {
    const groups = groupNodes(zones, values, "worst");
    expect(groups.map(label)).toEqual(["b", "a", "not set"]);
    expect(groups.map((each) => [...each.nodes])).toEqual([[2, 0], [1, 4], [3]]);
  });

  it("are one where every node has the same value, or the lake does not have the attribute", () => {
    expect(groupNodes({ key: "os", values: ["Debian"], codes: null }, values, "name").map(label)).toEqual(["Debian"]);
    expect(groupNodes(null, values, "name").map((each) => each.nodes.length)).toEqual([5]);
    expect(groupNodes(null, new Float32Array(0), "name")).toEqual([]);
  });

  it("keep every node when the smallest are merged", () => {
    const count = 3 * MAX_GROUPS;
    const codes = Uint16Array.from({ length: count + 5 }, (_, i) => (i < count ? i + 1 : 1));
    const many: Column = { key: "serial", values: Array.from({ length: count }, (_, i) => `sn${i}`), codes };
    const groups = groupNodes(many, new Float32Array(count + 5), "name");
    expect(groups).toHaveLength(MAX_GROUPS);
    expect(groups.reduce((sum, each) => sum + each.nodes.length, 0)).toBe(count + 5);
    expect(groups.find((each) => each.value === "sn0")?.nodes.length).toBe(6);
    expect(label(groups[MAX_GROUPS - 1])).toBe(`${count - MAX_GROUPS + 1} other values`);
  });
});

it("a value that is not set is empty", () => {
  expect([0, 1, 3].map((node) => valueOf(zones, node))).toEqual(["b", "a", ""]);
});

describe("strength", () => {
  const measure = (scale: "linear" | "log"): FleetMeasure => ({
    name: "x",
    title: "x",
    unit: "s",
    fold: "max",
    full: 10,
    scale,
    hue: "",
  });

  it.each(["linear", "log"] as const)("is 0 at zero, 1 at the full value and above, and grows (%s)", (scale) => {
    const of = (value: number): number => strength(value, measure(scale)) ?? -1;
    expect([of(0), of(10), of(1000)]).toEqual([0, 1, 1]);
    const grown = [0.01, 0.1, 1, 5, 10].map(of);
    expect([...grown].sort((a, b) => a - b)).toEqual(grown);
    expect(grown[0]).toBeGreaterThan(0);
  });

  it("is nothing where nothing was sent", () => {
    expect(strength(NaN, measure("log"))).toBeNull();
  });
});
