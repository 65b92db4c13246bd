import { describe, expect, it } from "vitest";
import { NO_FILTERS } from "../src/api";
import { noSamplesReason, noStacksReason } from "../src/panels/empty-states";
import { recording } from "../src/state";
import { overviewGrid } from "../src/timeline/overview";
import type { CoreGrid, MissingSource, RecordingInfo } from "../src/types";

const SPAN = { since: 1000, until: 2000 };
const UNRELATED = { source: "kernel-log", reason: "no stacks of perf in this text", remedy: "" };
const STACKS = { source: "stacks", reason: "perf_event_open is not allowed", remedy: "run as root" };

function reasonFor(missing: MissingSource[]): string | null {
  recording.value = { state: "ready", since: 0, until: 10_000, gaps: [], missing } as unknown as RecordingInfo;
  return noStacksReason(SPAN);
}

describe("the reason for a time without stacks", () => {
  it("is the missing source of stacks, by its id", () => {
    expect(reasonFor([UNRELATED])).toBeNull();
    expect(reasonFor([UNRELATED, STACKS])).toBe("No stacks: stacks: perf_event_open is not allowed; run as root");
  });
});

describe("the reason for a time without samples", () => {
  it("is not idle cores where the recording has no such cores", () => {
    overviewGrid.value = { cpus: [0, 1, 2] } as unknown as CoreGrid;
    expect(noSamplesReason({ filters: NO_FILTERS, list: [999] })).toBe("This recording has no core 999.");
    expect(noSamplesReason({ filters: NO_FILTERS, list: [2, 999] })).toContain("idle or offline");
    expect(noSamplesReason({ filters: NO_FILTERS, list: null })).toContain("idle or offline");
  });
});
