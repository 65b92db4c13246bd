import { describe, expect, it } from "vitest";
import { shownRows } from "../src/diagnosis/times";
import type { TimeRow } from "../src/types";

const row = (id: string, share: number): TimeRow => ({ kind: "state", id, name: id, seconds: 20 * share, share });

describe("rows of a breakdown", () => {
  it("adds small rows up, so that the table keeps its total", () => {
    const shown = shownRows([row("user", 0.994), row("irq", 0.004), row("softirq", 0.002), row("steal", 0)]);
    expect(shown.map((each) => each.id)).toEqual(["user", "less"]);
    expect(shown.reduce((sum, each) => sum + each.share, 0)).toBeCloseTo(1);
    expect(shown[1]?.seconds).toBeCloseTo(0.12);
  });

  it("keeps a single small row as it is", () => {
    expect(shownRows([row("user", 0.998), row("irq", 0.002)]).map((each) => each.id)).toEqual(["user", "irq"]);
  });
});
