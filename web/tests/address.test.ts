import { describe, expect, it } from "vitest";
import { MEASURES, measureOf, parseAddress, printAddress, defaultState, type PageState } from "../src/address";

const full: PageState = {
  since: 1_700_000_000_000,
  until: 1_700_000_060_000,
  last: null,
  s0: 1_700_000_010_000,
  s1: 1_700_000_015_000,
  cpus: [0, 3, 4, 5, 39],
  cores: [0, 1, 2, 3, 4, 5, 39],
  measure: "softirq",
  order: "worst",
  pinned: [3, 39],
  tall: true,
  slices: false,
  marked: 4711,
  tracks: ["pid:4711", "pod:shop/web-0; 1"],
  d0: 1_700_000_011_000,
  d1: 1_700_000_012_000,
  dc: [7],
  step: 3,
  tab: "difference",
  baseline: "window",
  b0: 1_699_999_000_000,
  b1: 1_699_999_060_000,
  shift: -3_600_000,
  comm: "python3.11",
  pid: "4711",
  container: "9f2a",
  pod: "ab-cd",
  stack: "lru.*(pages|list)&x=1#y",
  kind: "kernel",
  root: ["kubelet", "operator;() %3B", "read & write"],
  callerRoot: ["read", "a;b"],
  graph: "sandwich",
  frame: { name: "read", module: "/usr/lib/libc.so.6", kind: "user" },
  search: "mem_cgroup +1",
  hide: ["a;b", "100%"],
  up: true,
  colour: "module",
  column: 500,
  rows: 25,
  by: "pod",
  sort: "change",
  ascending: true,
  find: "eth0; TX & 100 %",
  fold: false,
  kinds: ["nic-reset", "oom"],
  paint: { name: "std::pair<int; long>", module: "[kernel]", kind: "kernel" },
  lanes: ["memcgs", "pressure"],
  utc: true,
};

describe("the address", () => {
  it("is empty for the defaults", () => {
    expect(printAddress(defaultState())).toBe("");
    expect(parseAddress("")).toEqual(defaultState());
  });

  it("holds the whole state", () => {
    const address = printAddress(full);
    expect(parseAddress(address)).toEqual(full);
    expect(printAddress(parseAddress(address))).toBe(address);
    for (const key of Object.keys(full)) {
      if (key !== "last") expect(address).toContain(`${key}=`);
    }
  });

  it("can have no open lane", () => {
    const none = { ...defaultState(), lanes: [] };
    expect(parseAddress(printAddress(none)).lanes).toEqual([]);
  });

  it("ignores what makes no sense", () => {
    const state = parseAddress("#since=5&until=3&measure=heat&cpus=x&s0=1&tab=nope&column=0&last=60000&more=1");
    expect(state).toEqual({ ...defaultState(), last: 60_000 });
  });

  it("lets a fixed view win over one that follows", () => {
    expect(parseAddress("#since=1000&until=2000&last=500").last).toBeNull();
  });
});

describe("the measure of the heatmap", () => {
  it("is the chosen one, and with a filter only where samples have it", () => {
    const shown = (comm: string): string[] =>
      MEASURES.map((measure) => measureOf({ ...defaultState(), measure, comm }));
    expect(shown("")).toEqual([...MEASURES]);
    const replaced = ["unusual", "stall", "deviation", "steal", "iowait", "wait"];
    expect(shown("kubelet")).toEqual(MEASURES.map((each) => (replaced.includes(each) ? "busy" : each)));
    expect(measureOf({ ...defaultState(), measure: "wait", cores: [3] })).toBe("wait");
  });
});
