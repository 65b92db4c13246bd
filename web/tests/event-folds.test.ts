import { describe, expect, it } from "vitest";
import { coresOf, foldEvents, patternOf } from "../src/panels/event-folds";
import type { NodeEvent } from "../src/types";

function event(at: number, text: string, more: Partial<NodeEvent> = {}): NodeEvent {
  return { at, text, kind: "kernel", severity: "info", cpu: null, marked: false, ...more } as NodeEvent;
}

describe("the pattern of a line", () => {
  it("is the same where numbers and ids differ", () => {
    for (const [one, other] of [
      ["eth0: renamed from veth5f2a3c", "eth0: renamed from veth00ffe1"],
      ["eth0: renamed from vethabcdefa", "eth0: renamed from veth1a2b3c4"],
      ["CPU 3 stuck for 22.5s", "CPU 95 stuck for 7s"],
      ["at 0xffffffff81000000 in 10.2.0.7:443", "at 0x10 in 192.168.1.12:8080"],
      ["container 9f2a11c0d3e4 of 0f1e2d3c-0000-4000 died", "container 000000000001 of aaaaaaaa-1111-2222 died"],
    ]) {
      expect(patternOf(one)).toBe(patternOf(other));
    }
  });

  it("differs where words do", () => {
    expect(patternOf("eth0: link up")).not.toBe(patternOf("eth0: link down"));
    expect(patternOf("renamed from veth1")).not.toBe(patternOf("renamed from cali1"));
    expect(patternOf("faded bead")).toBe("faded bead");
  });
});

describe("folded events", () => {
  const events = [
    event(1, "eth0: renamed from veth01"),
    event(2, "oom: killed 12", { severity: "critical", kind: "oom" }),
    event(3, "eth0: renamed from veth02", { cpu: 7 }),
    event(4, "eth0: renamed from veth03", { cpu: 3 }),
    event(5, "eth0: renamed from veth04", { severity: "warning" }),
  ];

  it("have each line once, with all of its times", () => {
    const folds = foldEvents(events);
    expect(folds.map((each) => [each.first.at, each.last.at, each.events.length])).toEqual([
      [1, 4, 3],
      [2, 2, 1],
      [5, 5, 1],
    ]);
    expect(coresOf(folds[0])).toEqual([3, 7]);
  });

  it("lose none, and are single lines on request", () => {
    for (const fold of [true, false]) {
      expect(foldEvents(events, fold).reduce((sum, each) => sum + each.events.length, 0)).toBe(events.length);
    }
    expect(foldEvents(events, false)).toHaveLength(events.length);
  });
});
