import { describe, expect, it } from "vitest";
import { colourOf, inkOn, rowAt, rowTop } from "../src/panels/flame/draw";
import { layOut, ROW } from "../src/panels/flame/layout";
import { modelOf, nodeAt } from "../src/panels/flame/model";
import { DARK, GREW, hueOf, LIGHT, rgb, SHRANK, type Rgb } from "../src/theme";
import { contrast, distance } from "./colours";
import { flameOf } from "./flames";

const FLAME = flameOf({ "a;main;read_k": 60, "a;main;idle": 40 }, { "a;main;read_k": 10, "a;main;idle": 90 });
const MODEL = modelOf(FLAME);

function colour(path: string[], by: "state" | "module" | "difference", theme = LIGHT): Rgb {
  return colourOf(MODEL, nodeAt(MODEL, path), { colour: by, theme });
}

describe("rows", () => {
  const layout = layOut(MODEL, 0, 100);

  it("hang down as icicles or grow up as flames", () => {
    expect(rowTop(layout, 0, false)).toBe(0);
    expect(rowTop(layout, 0, true)).toBe((layout.rows - 1) * ROW);
  });

  it("are found again where they are drawn", () => {
    for (const up of [true, false]) {
      for (let row = 0; row < layout.rows; row++) expect(rowAt(layout, rowTop(layout, row, up) + 1, up)).toBe(row);
    }
  });
});

describe("colours", () => {
  it("of kernel and user frames are those of the states", () => {
    const [kernel, user] = [colour(["a", "main", "read"], "state"), colour(["a", "main", "idle"], "state")];
    expect(distance(kernel, rgb(hueOf("system")))).toBeLessThan(distance(kernel, rgb(hueOf("user"))));
    expect(distance(user, rgb(hueOf("user")))).toBeLessThan(distance(user, rgb(hueOf("system"))));
  });

  it("of a difference: what grew, what shrank, what stayed", () => {
    expect(colour(["a", "main", "read"], "difference")).toEqual(rgb(GREW));
    expect(colour(["a", "main", "idle"], "difference")).toEqual(rgb(SHRANK));
    expect(colour(["a", "main"], "difference")).toEqual(rgb(LIGHT.unchanged));
    expect(colour(["a", "main"], "difference", DARK)).toEqual(rgb(DARK.unchanged));
  });

  it("of one module are alike, whatever the function", () => {
    const flame = flameOf({ "a;f": 1, "a;g": 1 });
    flame.labels.module = flame.labels.module.map(() => "libc.so.6");
    const model = modelOf(flame);
    const [one, other] = [["a", "f"], ["a", "g"]].map((path) =>
      colourOf(model, nodeAt(model, path), { colour: "module", theme: LIGHT }),
    );
    expect(distance(one, other)).toBeLessThan(20);
  });
});

describe("the names on frames", () => {
  it("are read on every colour that a frame may have", () => {
    for (let red = 0; red <= 255; red += 17) {
      for (let green = 0; green <= 255; green += 17) {
        for (let blue = 0; blue <= 255; blue += 17) {
          const ground: Rgb = [red, green, blue];
          expect(contrast(rgb(inkOn(ground)), ground)).toBeGreaterThan(4.5);
        }
      }
    }
  });
});
