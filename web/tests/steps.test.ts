import { describe, expect, it } from "vitest";
import { stepPath, totalWidth } from "../src/report/steps";

describe("a step chart", () => {
  it("has a step for each value, scaled to the greatest", () => {
    expect(stepPath([[5, 1], [10, 2]], 10, 100)).toBe("M0 100V50H1V0H3V100Z");
    expect(totalWidth([[5, 1], [10, 2]])).toBe(3);
  });

  it("has a gap where nothing was recorded", () => {
    expect(stepPath([[10, 1], [-1, 2], [5, 1]], 10, 100)).toBe("M0 100V0H1V100ZM3 100V50H4V100Z");
  });

  it("is flat where nothing happened, and empty without values", () => {
    expect(stepPath([[0, 2]], 0, 100)).toBe("M0 100V100H2V100Z");
    expect(stepPath([], 0, 100)).toBe("");
  });
});
