import { describe, expect, it } from "vitest";
import { clampHeight, LEAST_PX, mostHeight, stepHeight } from "../src/pane-height";

describe("the height of the timeline", () => {
  it("leaves room for the panels, and is never nothing", () => {
    expect(clampHeight(2000, 900)).toBe(760);
    expect(clampHeight(10, 900)).toBe(LEAST_PX);
    expect(mostHeight(200)).toBe(LEAST_PX);
  });

  it("changes by key", () => {
    expect(stepHeight("ArrowDown", 400, 900)).toBe(424);
    expect(stepHeight("ArrowUp", 400, 900)).toBe(376);
    expect(stepHeight("ArrowDown", 760, 900)).toBe(760);
    expect(stepHeight("Home", 400, 900)).toBe(LEAST_PX);
    expect(stepHeight("End", 400, 900)).toBe(760);
  });

  it("goes back to what is needed with Enter, and leaves other keys alone", () => {
    expect(stepHeight("Enter", 400, 900)).toBeNull();
    expect(stepHeight("n", 400, 900)).toBeUndefined();
  });
});
