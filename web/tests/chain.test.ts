import { describe, expect, it } from "vitest";
import {
  chainOf,
  culpritFacts,
  evidencePlace,
  isQuoted,
  laneOf,
  lanesWith,
  placeOf,
  shownValue,
} from "../src/diagnosis/chain";
import type { ChainLink, Culprit, Evidence, Finding } from "../src/types";

const UNKNOWN: Culprit = {
  cpu: null,
  pid: null,
  comm: null,
  cmdline: null,
  cgroup: null,
  container: null,
  pod: null,
  function: null,
  container_name: null,
  pod_name: null,
  owner: null,
};

function link(role: ChainLink["role"], at_ms: number): ChainLink {
  return { role, at: "", at_ms, text: role, evidence: [] };
}

function finding(chain: ChainLink[], culprit: Partial<Culprit>): Finding {
  return {
    cause: "zombie-memcgs",
    title: "Zombie memory cgroups",
    severity: "critical",
    scope: "node",
    confidence: 0.9,
    why_not_sure: [],
    summary: "",
    chain,
    culprit: { ...UNKNOWN, ...culprit },
    remedies: [],
    lost_s: 0,
    focus: { since: "", until: "", since_ms: 0, until_ms: 0 },
    forecast: null,
  };
}

function evidence(value: Evidence["value"], how: string, unit: string): Evidence {
  const rest = { table: "cpu", column: "system", where: "", since: "", until: "", since_ms: 0, until_ms: 0, cpu: null };
  return { ...rest, value, how, unit } as unknown as Evidence;
}

describe("the chain", () => {
  it("does not repeat a line of the log", () => {
    const quoting = { ...link("symptom", 1), text: "the kernel log says: eth0 reset" };
    expect(isQuoted(quoting, evidence("eth0 reset", "first", ""))).toBe(true);
    expect(isQuoted(quoting, evidence("eth1 reset", "first", ""))).toBe(false);
    expect(isQuoted({ ...quoting, text: "100 of them" }, evidence(100, "sum", ""))).toBe(false);
  });

  it("goes from symptom to root cause, in whatever order it came", () => {
    const chain = chainOf(finding([link("root_cause", 3), link("symptom", 1), link("mechanism", 2)], {}));
    expect(chain.map((each) => each.role)).toEqual(["symptom", "mechanism", "root_cause"]);
  });

  it("names the culprit before the root cause where no link does", () => {
    const culprit = { comm: "kubelet", pid: 812, function: "lru_pages", cpu: 0 };
    const chain = chainOf(finding([link("symptom", 1), link("mechanism", 2), link("root_cause", 3)], culprit));
    expect(chain.map((each) => each.role)).toEqual(["symptom", "mechanism", "culprit", "root_cause"]);
    expect(chain[2]).toMatchObject({ text: "kubelet (pid 812) in lru_pages on core 0", at_ms: 2 });
  });

  it("names no culprit twice, and no unknown one", () => {
    const named = finding([link("culprit", 2), link("symptom", 1)], { comm: "kubelet" });
    expect(chainOf(named).map((each) => each.role)).toEqual(["symptom", "culprit"]);
    expect(chainOf(finding([link("symptom", 1)], { comm: null, cpu: null }))).toHaveLength(1);
    expect(chainOf(finding([], { comm: "kubelet" }))).toEqual([]);
  });

  it("ends with the culprit where no root cause is known", () => {
    const chain = chainOf(finding([link("symptom", 1), link("mechanism", 2)], { comm: "stress" }));
    expect(chain.map((each) => each.role)).toEqual(["symptom", "mechanism", "culprit"]);
  });
});

describe("a piece of evidence", () => {
  it("has its unit, a share as a percentage", () => {
    expect(shownValue(evidence(0.97, "share", ""))).toBe("97 %");
    expect(shownValue(evidence(68_680, "max", "groups"))).toBe("68,680 groups");
    expect(shownValue(evidence("eth0", "first", ""))).toBe("eth0");
    expect(shownValue(evidence(null, "first", ""))).toBe("");
  });

  it("names its time and core", () => {
    const at = Date.UTC(2026, 10, 15, 3, 14, 7);
    const of = { ...evidence(1, "max", ""), since_ms: at, until_ms: at + 60_000, cpu: 0 };
    expect(evidencePlace(of, true)).toBe("03:14:07 – 03:15:07, core 0");
    expect(evidencePlace({ ...of, until_ms: at + 447, cpu: null }, true)).toBe("03:14:07");
  });

  it("is a second at least, with half a minute around it", () => {
    const whole = { since: 0, until: 600_000 };
    expect(placeOf({ since: 100_000, until: 100_200 }, whole)).toEqual({
      selected: { since: 100_000, until: 101_000 },
      shown: { since: 70_000, until: 131_000 },
    });
  });

  it("shows as much around a long one, within the recording", () => {
    const long = placeOf({ since: 100_000, until: 220_000 }, { since: 0, until: 250_000 });
    expect(long.shown).toEqual({ since: 0, until: 250_000 });
    expect(placeOf({ since: 100_000, until: 220_000 }, null).shown).toEqual({ since: -20_000, until: 340_000 });
  });
});

describe("the culprit", () => {
  it("has the facts that are known, names with their ids", () => {
    const names = { pod: "0f1e", pod_name: "shop/cart-0", owner: "deployment/cart" };
    const culprit = { ...UNKNOWN, cpu: 0, comm: "kubelet", pid: 812, ...names };
    expect(culpritFacts(culprit)).toEqual([
      ["core", "0"],
      ["process", "kubelet (812)"],
      ["pod", "shop/cart-0 (0f1e)"],
      ["owner", "deployment/cart"],
    ]);
    expect(culpritFacts(UNKNOWN)).toEqual([]);
  });
});

describe("the lane of a piece of evidence", () => {
  it("is the one that draws its column", () => {
    expect(laneOf({ table: "cgroups", column: "kernel" })).toBe("memcgs");
    expect(laneOf({ table: "node", column: "psi_io_some" })).toBe("pressure");
    expect(laneOf({ table: "events", column: "text" })).toBeNull();
  });

  it("takes the place of the one that was opened by itself, and comes after those that were chosen", () => {
    expect(lanesWith("memcgs", ["auto"])).toEqual(["memcgs"]);
    expect(lanesWith("memcgs", ["pressure"])).toEqual(["pressure", "memcgs"]);
    expect(lanesWith("memcgs", ["memcgs"])).toEqual(["memcgs"]);
    expect(lanesWith(null, ["auto"])).toEqual(["auto"]);
  });
});
