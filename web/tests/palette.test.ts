import { describe, expect, it } from "vitest";
import { DARK, GREW, LIGHT, rgb, SHRANK, STATES, type Rgb } from "../src/theme";
import { contrast, DEFICIENCIES, distance, lab, seenWith } from "./colours";

/** Distances are CIE76; 2.3 is the least that people notice, so this is more than six times as much. */
const APART = 15;
const SIGHT: [string, (colour: Rgb) => Rgb][] = [
  ["every cone", (colour) => colour],
  ...Object.entries(DEFICIENCIES).map(([name, matrix]): [string, (colour: Rgb) => Rgb] => [
    name,
    (colour) => seenWith(colour, matrix),
  ]),
];

describe("the measure itself", () => {
  it("knows white, black and a red that green-blind people take for a dark green", () => {
    expect(lab([255, 255, 255])[0]).toBeCloseTo(100, 1);
    expect(contrast([0, 0, 0], [255, 255, 255])).toBeCloseTo(21, 1);
    const [red, green]: [Rgb, Rgb] = [
      [190, 60, 40],
      [110, 105, 40],
    ];
    expect(distance(red, green)).toBeGreaterThan(50);
    const see = (colour: Rgb): Rgb => seenWith(colour, DEFICIENCIES.deuteranopia);
    expect(distance(see(red), see(green))).toBeLessThan(APART);
  });

  it("leaves grey as it is", () => {
    for (const matrix of Object.values(DEFICIENCIES)) {
      expect(distance([128, 128, 128], seenWith([128, 128, 128], matrix))).toBeLessThan(1);
    }
  });
});

describe.each(SIGHT)("seen with %s", (_, see) => {
  it("the states stay apart", () => {
    for (const [i, one] of STATES.entries()) {
      for (const other of STATES.slice(i + 1)) {
        const found = distance(see(rgb(one.hue)), see(rgb(other.hue)));
        expect(found, `${one.name} and ${other.name}`).toBeGreaterThan(APART);
      }
    }
  });

  it("the states stay apart from a core at rest", () => {
    for (const theme of [LIGHT, DARK]) {
      for (const { name, hue } of STATES) {
        expect(distance(see(rgb(hue)), see(theme.ground)), name).toBeGreaterThan(APART);
      }
    }
  });

  it("what grew is not what shrank, nor what stayed", () => {
    expect(distance(see(rgb(GREW)), see(rgb(SHRANK)))).toBeGreaterThan(80);
    for (const { unchanged } of [LIGHT, DARK]) {
      for (const hue of [GREW, SHRANK]) expect(distance(see(rgb(hue)), see(rgb(unchanged)))).toBeGreaterThan(25);
    }
  });
});

describe("words drawn on the ground", () => {
  it.each([
    ["light", LIGHT],
    ["dark", DARK],
  ])("are read in the %s", (_, theme) => {
    for (const ink of [theme.ink, rgb(theme.muted), rgb(theme.accent)]) {
      expect(contrast(ink, theme.ground)).toBeGreaterThan(4.5);
    }
  });
});
