import { describe, expect, it } from "vitest";
import { lossAmount, lossSummary } from "../src/losses";
import type { Loss } from "../src/types";

function loss(kind: string, count: number, source = "stacks"): Loss {
  return { source, kind, count, text: "" };
}

describe("what was lost", () => {
  it("is counted in the unit of its kind", () => {
    expect(lossAmount(loss("late-tick", 3))).toBe("late by 3 s");
    expect(lossAmount(loss("lost-samples", 31_000))).toBe("31,000 samples lost");
    expect(lossAmount(loss("lost-task-records", 2))).toBe("2 task records lost");
    expect(lossAmount(loss("sequence-gap", 1, "kernel-log"))).toBe("1 log line lost");
    expect(lossAmount(loss("rate-lowered", 1))).toBe("rate lowered once");
    expect(lossAmount(loss("rate-lowered", 2))).toBe("rate lowered 2 times");
    expect(lossAmount(loss("source-failed", 1, "cgroups"))).toBe("cgroups failed once");
    expect(lossAmount(loss("symbols-over-budget", 4))).toBe("symbols over budget 4 times");
  });

  it("is never added up over kinds", () => {
    expect(lossSummary([])).toBe("nothing lost");
    expect(lossSummary([loss("late-tick", 3), loss("lost-samples", 31)])).toBe("late by 3 s · 31 samples lost");
    expect(lossSummary([loss("gap", 2000), loss("late-tick", 3), loss("overrun", 5), loss("damaged", 1)])).toBe(
      "2 s not in the files · late by 3 s · 2 more",
    );
  });

  it("of one kind is one figure over sources, but each that failed is named", () => {
    expect(lossSummary([loss("lost-samples", 1), loss("lost-samples", 2, "perf")])).toBe("3 samples lost");
    expect(lossSummary([loss("source-failed", 1, "cgroups"), loss("source-failed", 2, "node")])).toBe(
      "cgroups failed once · node failed 2 times",
    );
  });
});
