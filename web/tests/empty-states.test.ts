import { describe, expect, it } from "vitest";
import { noStacksReason } from "../src/panels/empty-states";
import { recording } from "../src/state";
import type { MissingSource, RecordingInfo } from "../src/types";

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
