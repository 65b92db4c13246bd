import { describe, expect, it } from "vitest";
import { layOut } from "../src/panels/flame/layout";
import {
  childNodes,
  growth,
  labelOf,
  modelOf,
  nameOf,
  nodeAt,
  shareOf,
  type FlameModel,
} from "../src/panels/flame/model";
import { stackOf } from "../src/panels/flame/menu";
import { inverted, sandwich, type Sandwich } from "../src/panels/flame/trees";
import { costInReadings, flameOf, largeFlame } from "./flames";

const STACKS = {
  "kubelet;main;read;vfs_read_k;lru_pages_k": 60,
  "kubelet;main;read;vfs_read_k": 10,
  "kubelet;main;gc": 10,
  "nginx;main;vfs_read_k;lru_pages_k": 20,
};

function sandwichOf(model: FlameModel, name: string): Sandwich {
  const label = model.flame.labels.name.indexOf(name);
  return sandwich(model, label)!;
}

/** Each path from the top with its time. */
function paths(model: FlameModel, side = model.now): Record<string, number> {
  const found: Record<string, number> = {};
  const walk = (node: number, path: string): void => {
    for (const child of childNodes(model, node)) {
      const here = path === "" ? nameOf(model, child) : `${path} < ${nameOf(model, child)}`;
      found[here] = side[child];
      walk(child, here);
    }
  };
  walk(0, "");
  return found;
}

describe("the inverted tree", () => {
  it("has functions by self time, with their callers below", () => {
    const model = inverted(modelOf(flameOf(STACKS)));
    expect(childNodes(model, 0).map((node) => [nameOf(model, node), model.now[node]])).toEqual([
      ["lru_pages", 80],
      ["gc", 10],
      ["vfs_read", 10],
    ]);
    expect(paths(model)).toMatchObject({
      "lru_pages < vfs_read": 80,
      "lru_pages < vfs_read < read < main < kubelet": 60,
      "lru_pages < vfs_read < main < nginx": 20,
    });
  });

  it("counts each sample once, recursion or not", () => {
    for (const stacks of [STACKS, { "a;walk;walk;walk": 3, "a;walk": 1, "b;x;walk;y;walk": 5 }]) {
      const model = inverted(modelOf(flameOf(stacks)));
      const first = childNodes(model, 0).reduce((sum, node) => sum + model.now[node], 0);
      expect(first).toBe(model.now[0]);
      for (let node = 1; node < model.size; node++) {
        const callers = childNodes(model, node).reduce((sum, child) => sum + model.now[child], 0);
        expect(callers).toBeLessThanOrEqual(model.now[node]);
      }
    }
  });

  it("is of both sides of a difference, and without what is hidden", () => {
    const before = { "nginx;main;vfs_read_k;lru_pages_k": 50, "cron;run": 50 };
    const model = inverted(modelOf(flameOf(STACKS, before), ["gc"]));
    expect(growth(model, nodeAt(model, ["lru_pages"]))).toBeCloseTo(80 / 90 - 0.5);
    expect(growth(model, nodeAt(model, ["run"]))).toBeCloseTo(-0.5);
    expect(paths(model)).not.toHaveProperty("gc");
  });

  it("adds the self time in places that are too thin to be drawn, without their callers", () => {
    const flame = flameOf({ "a;main;read_k": 60, "a;main": 20 });
    // Of what main has beside read, 15 are in frames that were dropped: 10 of read, 5 of free, which is drawn nowhere.
    const main = flame.labels.name.indexOf("main");
    flame.own[flame.label.indexOf(main)] = 5;
    flame.labels.own[main] = 5;
    flame.labels.own[flame.labels.name.indexOf("read")] = 70;
    flame.labels.name.push("free");
    flame.labels.kind.push("user");
    flame.labels.module.push("");
    flame.labels.own.push(5);
    flame.labels.total.push(5);
    const model = inverted(modelOf(flame));
    expect(paths(model)).toEqual({
      read: 70,
      "read < main": 60,
      "read < main < a": 60,
      main: 5,
      "main < a": 5,
      free: 5,
    });
    expect(model.now[0]).toBe(80);
  });

  it("copies stacks outermost first", () => {
    const model = inverted(modelOf(flameOf(STACKS)));
    const node = nodeAt(model, ["lru_pages", "vfs_read", "main", "nginx"]);
    expect(stackOf(model, node)).toEqual(["nginx", "main", "vfs_read", "lru_pages"]);
  });
});

describe("a sandwich", () => {
  it("merges all places of a function: who called it, and what it called", () => {
    const { callers, callees } = sandwichOf(modelOf(flameOf(STACKS)), "vfs_read");
    expect(paths(callees)).toEqual({ vfs_read: 90, "vfs_read < lru_pages": 80 });
    expect(paths(callers)).toEqual({
      vfs_read: 90,
      "vfs_read < read": 70,
      "vfs_read < read < main": 70,
      "vfs_read < read < main < kubelet": 70,
      "vfs_read < main": 20,
      "vfs_read < main < nginx": 20,
    });
    // Shares stay those of the whole time.
    expect(shareOf(callees.now, 1)).toBeCloseTo(0.9);
  });

  it("counts a function that calls itself once", () => {
    const model = modelOf(flameOf({ "a;walk;walk;walk": 3, "a;walk;leaf": 1, "b;walk;other;walk": 2 }));
    const { callers, callees } = sandwichOf(model, "walk");
    expect([callers.now[1], callees.now[1]]).toEqual([6, 6]);
    expect(paths(callers)).toEqual({ walk: 6, "walk < a": 4, "walk < b": 2 });
    expect(paths(callees)).toMatchObject({ "walk < walk": 3, "walk < walk < walk": 3, "walk < other < walk": 2 });
  });

  it("has the same time above and below, for every function", () => {
    const model = modelOf(flameOf(STACKS, { "kubelet;main;gc": 5, "nginx;main": 1 }));
    for (let label = 1; label < model.flame.labels.name.length; label++) {
      const both = sandwich(model, label)!;
      expect(both.callers.now[1]).toBe(both.callees.now[1]);
      expect(both.callers.base![1]).toBe(both.callees.base![1]);
      expect(both.callees.now[1]).toBe(model.functions.total[label]);
    }
  });

  it("is of the function's own label, and of none where it does not run", () => {
    const model = modelOf(flameOf({ "read;x": 1, "a;read": 2 }));
    const [thread, called] = ["comm", "user"].map((kind) => labelOf(model, { name: "read", module: "", kind }));
    expect(sandwich(model, thread)!.callees.now[1]).toBe(1);
    expect(sandwich(model, called)!.callees.now[1]).toBe(2);
    expect(sandwich(model, labelOf(model, { name: "gone", module: "", kind: "user" }))).toBeNull();
    expect(sandwich(modelOf(model.flame, ["read"]), called)).toBeNull();
  });

  it("is drawn with its callers above the function, which is drawn once", () => {
    const { callers, callees } = sandwichOf(modelOf(flameOf(STACKS)), "vfs_read");
    const [above, below] = [layOut(callers, 1, 900, 2), layOut(callees, 1, 900, 1)];
    const names = Array.from(above.node, (node) => nameOf(callers, node));
    expect(names).toEqual(["read", "main", "main", "nginx", "kubelet"]);
    expect(above.row[0]).toBe(0);
    expect(above.width[0]).toBeCloseTo(700);
    expect(Array.from(below.node, (node) => nameOf(callees, node))).toEqual(["vfs_read", "lru_pages"]);
    expect([above.rows, below.rows]).toEqual([3, 2]);
    // A thread has no callers.
    const thread = sandwichOf(modelOf(flameOf(STACKS)), "nginx").callers;
    expect(layOut(thread, 1, 900, 2)).toMatchObject({ count: 0, rows: 0 });
  });
});

describe("twenty thousand frames", () => {
  it("are inverted and cut into a sandwich in the time of a few readings", () => {
    const model = modelOf(largeFlame(20_000));
    const work = () => {
      expect(inverted(model).size).toBeGreaterThan(20_000 - 1);
      sandwich(model, model.label[12]);
    };
    expect(costInReadings(model.flame, work)).toBeLessThan(7);
  });
});
