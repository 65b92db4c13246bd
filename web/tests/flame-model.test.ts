import { describe, expect, it } from "vitest";
import {
  childNodes,
  growth,
  modelOf,
  nameOf,
  nodeAt,
  pathTo,
  search,
  shareOf,
  topFunctions,
  type FlameModel,
} from "../src/panels/flame/model";
import { flameOf } from "./flames";

const STACKS = {
  "kubelet;main;read;vfs_read_k;lru_pages_k": 60,
  "kubelet;main;read;vfs_read_k": 10,
  "kubelet;main;gc": 10,
  "nginx;main;write": 20,
};

function widthOf(model: FlameModel, ...path: string[]): number {
  const node = nodeAt(model, path);
  expect(pathTo(model, node).map((each) => nameOf(model, each))).toEqual(path);
  return model.width[node];
}

describe("widths", () => {
  it("are shares of the whole, with what a frame called inside it", () => {
    const model = modelOf(flameOf(STACKS));
    expect(widthOf(model, "kubelet")).toBeCloseTo(0.8);
    expect(widthOf(model, "kubelet", "main", "read")).toBeCloseTo(0.7);
    expect(widthOf(model, "kubelet", "main", "read", "vfs_read", "lru_pages")).toBeCloseTo(0.6);
    expect(model.deepest).toBe(5);
  });

  it("put the widest first, and equals by name", () => {
    const model = modelOf(flameOf({ "b;x": 1, "a;x": 1, "c;x": 5 }));
    expect(childNodes(model, 0).map((node) => nameOf(model, node))).toEqual(["c", "a", "b"]);
  });

  it("never let children be wider than what called them", () => {
    const model = modelOf(flameOf(STACKS, { "nginx;main;write": 3, "cron;run": 1 }));
    for (let node = 0; node < model.size; node++) {
      const inside = childNodes(model, node).reduce((sum, child) => sum + model.width[child], 0);
      expect(inside).toBeLessThanOrEqual(model.width[node] + 1e-9);
    }
  });

  it("stay finite where there is no weight at all", () => {
    const model = modelOf(flameOf({ "a;b": 0 }));
    expect(Array.from(model.width).every((width) => width === 0)).toBe(true);
  });
});

describe("hiding", () => {
  it("takes a frame with what it called, and shrinks what called it", () => {
    const model = modelOf(flameOf(STACKS), ["read"]);
    expect(nodeAt(model, ["kubelet", "main", "read"])).toBe(nodeAt(model, ["kubelet", "main"]));
    expect(widthOf(model, "kubelet", "main", "gc")).toBeCloseTo(10 / 30);
    expect(widthOf(model, "kubelet")).toBeCloseTo(10 / 30);
    expect(widthOf(model, "nginx")).toBeCloseTo(20 / 30);
    expect(model.deepest).toBe(3);
  });

  it("counts a hidden frame below another hidden one once", () => {
    const model = modelOf(flameOf(STACKS), ["vfs_read", "lru_pages"]);
    expect(widthOf(model, "kubelet", "main", "gc")).toBeCloseTo(10 / 30);
    expect(search(model, "lru_pages")?.nodes).toHaveLength(0);
  });

  it("hides everywhere that the name is", () => {
    const model = modelOf(flameOf(STACKS), ["main"]);
    expect(model.width[0]).toBe(0);
  });

  it("makes every number one of what is left", () => {
    const model = modelOf(flameOf(STACKS), ["read"]);
    const gc = nodeAt(model, ["kubelet", "main", "gc"]);
    expect([model.now[0], model.samples[0], model.samples[gc]]).toEqual([30, 30, 10]);
    expect(shareOf(model.now, gc)).toBeCloseTo(1 / 3);
    const rows = topFunctions(model, 9);
    expect(rows.map((row) => row.frame.name)).toEqual(["write", "gc"]);
    expect(rows.map((row) => row.own)).toEqual([2 / 3, 1 / 3]);
    expect(rows.every((row) => row.total >= row.own)).toBe(true);
    expect(search(model, "gc|vfs_read")!.share).toBeCloseTo(1 / 3);
  });

  it("acts on both sides of a difference", () => {
    const model = modelOf(flameOf(STACKS, { "kubelet;main;read": 50, "nginx;main;write": 50 }), ["read"]);
    // Left: 10 gc and 20 nginx; before: nginx alone. The width is the mean of both shares.
    expect(widthOf(model, "nginx")).toBeCloseTo((20 / 30 + 1) / 2);
    expect(growth(model, nodeAt(model, ["nginx"]))).toBeCloseTo(20 / 30 - 1);
    expect(topFunctions(model, 9).map((row) => row.frame.name)).toEqual(["write", "gc"]);
    expect(search(model, "write")).toMatchObject({ share: 20 / 30, before: 1 });
  });
});

describe("the path of a zoom", () => {
  it("leads back to the same node", () => {
    const model = modelOf(flameOf(STACKS));
    for (let node = 0; node < model.size; node++) {
      expect(nodeAt(model, pathTo(model, node).map((each) => nameOf(model, each)))).toBe(node);
    }
  });

  it("leads as far as it can where the rest is not there", () => {
    const model = modelOf(flameOf(STACKS));
    expect(nameOf(model, nodeAt(model, ["kubelet", "main", "elsewhere", "deeper"]))).toBe("main");
    expect(nodeAt(model, ["no-such-frame"])).toBe(0);
  });
});

describe("searching", () => {
  it("counts nested matches once", () => {
    const model = modelOf(flameOf(STACKS));
    const found = search(model, "read|lru")!;
    expect(Array.from(found.nodes, (node) => nameOf(model, node))).toEqual(["read", "vfs_read", "lru_pages"]);
    expect(found.share).toBeCloseTo(0.7);
  });

  it("has the share of what is zoomed into", () => {
    const model = modelOf(flameOf(STACKS));
    const main = nodeAt(model, ["kubelet", "main"]);
    expect(search(model, "lru|write", main)!.zoomed).toBeCloseTo(60 / 80);
    expect(search(model, "kubelet", main)!.zoomed).toBe(1);
    expect(search(model, "write", main)).toMatchObject({ share: 0.2, zoomed: 0, before: null });
  });

  it("adds up matches next to each other", () => {
    expect(search(modelOf(flameOf(STACKS)), "lru_pages|write")!.share).toBeCloseTo(0.8);
    expect(search(modelOf(flameOf(STACKS)), "MAIN")!.share).toBeCloseTo(1);
  });

  it("takes what is no expression as text, and nothing as nothing", () => {
    const model = modelOf(flameOf({ "a;std::vector<(int": 1, "a;b": 3 }));
    expect(search(model, "vector<(")!.share).toBeCloseTo(0.25);
    expect(search(model, "")).toBeNull();
    expect(search(model, "no-such-frame")).toMatchObject({ nodes: new Int32Array(), share: 0 });
  });
});

describe("a difference", () => {
  const model = modelOf(flameOf({ "a;x": 90, "a;y": 10 }, { "a;x": 10, "a;y": 30, "gone;z": 60 }));

  it("has the mean of both shares as width, so that it adds up everywhere", () => {
    expect(widthOf(model, "a", "x")).toBeCloseTo((0.9 + 0.1) / 2);
    expect(widthOf(model, "gone")).toBeCloseTo(0.3);
    expect(widthOf(model, "a") + widthOf(model, "gone")).toBeCloseTo(1);
  });

  it("has growth in shares of each side", () => {
    expect(growth(model, nodeAt(model, ["a", "x"]))).toBeCloseTo(0.8);
    expect(growth(model, nodeAt(model, ["gone", "z"]))).toBeCloseTo(-0.6);
    expect(growth(modelOf(flameOf(STACKS)), 1)).toBe(0);
  });

  it("has the width of the only side that has time", () => {
    expect(widthOf(modelOf(flameOf({ "a;x": 4 }, {})), "a")).toBeCloseTo(1);
    expect(widthOf(modelOf(flameOf({}, { "a;x": 4 })), "a")).toBeCloseTo(1);
  });

  it("ranks functions by how much they changed", () => {
    expect(topFunctions(model, 2).map((row) => row.frame.name)).toEqual(["x", "z"]);
    expect(topFunctions(model, 2).map((row) => Math.round(row.grown * 100))).toEqual([80, -60]);
  });
});

describe("the top functions", () => {
  it("are ranked by the time in themselves, threads left out", () => {
    const rows = topFunctions(modelOf(flameOf(STACKS)), 3);
    expect(rows.map((row) => row.frame.name)).toEqual(["lru_pages", "write", "vfs_read"]);
    expect(rows.map((row) => row.own)).toEqual([0.6, 0.2, 0.1]);
    expect(rows[2].total).toBeCloseTo(0.7);
  });

  it("count a function that calls itself once", () => {
    const [row] = topFunctions(modelOf(flameOf({ "a;walk;walk;walk": 3, "a;walk": 1 })), 1);
    expect(row).toMatchObject({ own: 1, total: 1 });
  });
});
