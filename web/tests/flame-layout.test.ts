import { describe, expect, it } from "vitest";
import { hit, indexOf, layOut, neighbour, THINNEST, type Layout } from "../src/panels/flame/layout";
import { modelOf, nameOf, nodeAt, search, type FlameModel } from "../src/panels/flame/model";
import { costInReadings, flameOf, largeFlame } from "./flames";

const MODEL = modelOf(flameOf({ "a;x;p": 40, "a;x;q": 20, "a;y": 10, "b;z": 30 }));

function place(layout: Layout, model: FlameModel, ...path: string[]): { x: number; width: number; row: number } {
  const at = indexOf(layout, nodeAt(model, path));
  return { x: layout.x[at], width: layout.width[at], row: layout.row[at] };
}

function nameAt(layout: Layout, index: number): string {
  return index < 0 ? "" : nameOf(MODEL, layout.node[index]);
}

describe("frames stand", () => {
  it("inside what called them, the widest first", () => {
    const layout = layOut(MODEL, 0, 1000);
    expect(place(layout, MODEL, "a")).toEqual({ x: 0, width: 700, row: 1 });
    expect(place(layout, MODEL, "b")).toEqual({ x: 700, width: 300, row: 1 });
    expect(place(layout, MODEL, "a", "y").x).toBeCloseTo(600);
    expect(place(layout, MODEL, "a", "x", "q").x).toBeCloseTo(400);
    expect(layout.rows).toBe(4);
    expect(layout.count).toBe(MODEL.size);
  });

  it("over the whole width below a zoom, with the way there above", () => {
    const layout = layOut(MODEL, nodeAt(MODEL, ["a", "x"]), 600);
    expect(layout.ancestors).toBe(2);
    for (const path of [[], ["a"], ["a", "x"]]) {
      expect(place(layout, MODEL, ...path)).toMatchObject({ x: 0, width: 600 });
    }
    expect(place(layout, MODEL, "a", "x", "p").width).toBeCloseTo(400);
    expect(indexOf(layout, nodeAt(MODEL, ["b"]))).toBe(-1);
  });

  it("only as deep as something can be seen, once that is deep", () => {
    const deep = (name: string, rows: number): string => Array.from({ length: rows }, (_, i) => name + i).join(";");
    const model = modelOf(flameOf({ [deep("wide", 50)]: 9990, [deep("sliver", 300)]: 10 }));
    const layout = layOut(model, 0, 1000);
    expect([layout.rows, layout.unseen]).toEqual([51, 250]);
    expect(Math.max(...layout.row.subarray(0, layout.count))).toBe(50);
    // Zoomed into, they are there.
    expect(layOut(model, nodeAt(model, ["sliver0"]), 1000)).toMatchObject({ rows: 301, unseen: 0 });
    // A stack that is not deep is drawn to its end.
    const flat = modelOf(flameOf({ wide: 9990, [deep("sliver", 30)]: 10 }));
    expect(layOut(flat, 0, 1000)).toMatchObject({ rows: 31, unseen: 0 });
  });

  it("nowhere where they would be thinner than can be seen", () => {
    const model = modelOf(flameOf({ "a;wide": 9999, "a;thin;deep": 1 }));
    const layout = layOut(model, 0, 1000);
    expect(1000 / 10_000).toBeLessThan(THINNEST);
    expect(indexOf(layout, nodeAt(model, ["a", "thin"]))).toBe(-1);
    const zoomed = layOut(model, nodeAt(model, ["a", "thin"]), 1000);
    expect(place(zoomed, model, "a", "thin", "deep").width).toBeCloseTo(1000);
  });

  it("without weight only as the whole", () => {
    const layout = layOut(modelOf(flameOf({ "a;b": 0 })), 0, 500);
    expect(layout.count).toBe(1);
  });
});

describe("what is under the pointer", () => {
  const layout = layOut(MODEL, 0, 1000);

  it("is the frame there, to the pixel", () => {
    expect(nameAt(layout, hit(layout, 699.9, 1))).toBe("a");
    expect(nameAt(layout, hit(layout, 700, 1))).toBe("b");
    expect(nameAt(layout, hit(layout, 650, 2))).toBe("y");
  });

  it("is nothing next to the frames", () => {
    expect(hit(layout, 650, 3)).toBe(-1);
    expect(hit(layout, 10, 9)).toBe(-1);
    expect(hit(layout, -1, 1)).toBe(-1);
  });
});

describe("going from frame to frame", () => {
  const layout = layOut(MODEL, 0, 1000);
  const at = (...path: string[]): number => indexOf(layout, nodeAt(MODEL, path));
  const go = (from: number, where: "in" | "out" | "before" | "after"): string =>
    nameAt(layout, neighbour(MODEL, layout, from, where));

  it("goes in to the widest and out to the caller", () => {
    expect(go(at("a"), "in")).toBe("x");
    expect(go(at("a", "x"), "in")).toBe("p");
    expect(go(at("a", "x", "q"), "out")).toBe("x");
    expect(go(at("a"), "out")).toBe("all");
  });

  it("goes along the row, over the borders of callers", () => {
    expect(go(at("a", "x"), "after")).toBe("y");
    expect(go(at("a", "y"), "after")).toBe("z");
    expect(go(at("b", "z"), "before")).toBe("y");
  });

  it("stays at the ends", () => {
    expect(go(at("b", "z"), "in")).toBe("z");
    expect(go(at("a", "x"), "before")).toBe("x");
    expect(go(0, "out")).toBe("all");
  });

  it("begins at what fills the width", () => {
    expect(go(-1, "in")).toBe("all");
    const zoomed = layOut(MODEL, nodeAt(MODEL, ["a", "x"]), 600);
    expect(nameAt(zoomed, neighbour(MODEL, zoomed, -1, "in"))).toBe("x");
  });
});

describe("twenty thousand frames", () => {
  it("are laid out and searched in the time of a few readings", () => {
    const flame = largeFlame(20_000);
    expect(flame.label.length).toBeGreaterThanOrEqual(20_000);
    const work = () => {
      const model = modelOf(flame);
      const layout = layOut(model, 0, 4000);
      search(model, "f[0-9]+_7");
      expect(layout.count).toBe(flame.label.length);
    };
    expect(costInReadings(flame, work)).toBeLessThan(4);
  });
});
