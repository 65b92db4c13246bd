import { describe, expect, it } from "vitest";
import { nodeState, ranked, recentSpan, worstDiagnosis } from "../src/answer/node";
import type { Diagnosis, Incident } from "../src/types";

function incident(since: number, of: Partial<Incident>): Incident {
  return {
    since,
    until: since + 1000,
    id: String(since),
    at: since,
    text: "held",
    marks: 1,
    cpus: [],
    state: "known",
    cause: null,
    title: null,
    severity: null,
    confidence: null,
    summary: null,
    ...of,
  };
}

const HEALTHY = { verdict: "healthy" } as Diagnosis;
const DEGRADED = { verdict: "degraded" } as Diagnosis;

describe("the state of the node", () => {
  const critical = incident(1000, { severity: "critical" });
  const warning = incident(2000, { severity: "warning" });
  const waiting = incident(3000, { state: "waiting" });
  const unexplained = incident(4000, { state: "unknown" });

  it("is that of the worst incident", () => {
    expect(nodeState([warning, critical, waiting], HEALTHY)).toBe("starved");
    expect(nodeState([waiting, warning], null)).toBe("degraded");
    expect(nodeState([unexplained], HEALTHY)).toBe("unknown");
  });

  it("is not called healthy while an incident waits for its diagnosis", () => {
    expect(nodeState([waiting], HEALTHY)).toBe("diagnosing");
  });

  it("is that of the end of a recording without incidents", () => {
    expect(nodeState([], HEALTHY)).toBe("healthy");
    expect(nodeState([], null)).toBeNull();
  });

  it("is never better than what is diagnosed next to it", () => {
    expect(nodeState([], DEGRADED)).toBe("degraded");
    expect(nodeState([incident(5000, { severity: "info" })], DEGRADED)).toBe("degraded");
    expect(nodeState([waiting], DEGRADED)).toBe("degraded");
    expect(nodeState([critical], DEGRADED)).toBe("starved");
  });

  it("has the sentence of the worst diagnosis, of equals of the first", () => {
    expect(worstDiagnosis(null, null)).toBeNull();
    expect(worstDiagnosis(null, HEALTHY)).toBe(HEALTHY);
    expect(worstDiagnosis(HEALTHY, DEGRADED)).toBe(DEGRADED);
    expect(worstDiagnosis(DEGRADED, null)).toBe(DEGRADED);
    expect(worstDiagnosis(HEALTHY, { ...HEALTHY })).toBe(HEALTHY);
  });

  it("has the worst incident first, of equals the newest", () => {
    const later = incident(5000, { severity: "critical" });
    expect(ranked([critical, warning, waiting, later]).map((each) => each.since)).toEqual([5000, 1000, 2000, 3000]);
  });
});

describe("what is diagnosed for the first view", () => {
  const recorded = { live: false, since: 0, until: 3_600_500 };

  it("is the end of a recording without incidents", () => {
    expect(recentSpan(recorded, 0)).toEqual({ since: 3_000_500, until: 3_600_500 });
    expect(recentSpan(recorded, 2)).toBeNull();
  });

  it("is the last whole minute of a live one, also with incidents", () => {
    const live = { ...recorded, live: true };
    expect(recentSpan(live, 2)).toEqual({ since: 3_540_000, until: 3_600_000 });
    expect(recentSpan({ ...live, until: 3_600_900 }, 2)).toEqual(recentSpan(live, 2));
    expect(recentSpan({ live: true, since: 70_000, until: 90_000 }, 0)).toBeNull();
  });
});
