import { describe, expect, it, vi } from "vitest";
import { queryString } from "../src/http";
import { formatCores, parseCpus, printCpus } from "../src/cpulist";
import { bytes, confidence, count, duration, moment, percent, quantity, range, stamp, zone } from "../src/format";
import { parseQuery, printQuery, type Query } from "../src/query";

describe("cores", () => {
  it("are written as the kernel does", () => {
    expect(printCpus([7, 3, 4, 5, 0])).toBe("0,3-5,7");
    expect(parseCpus("0,3-5, 7")).toEqual([0, 3, 4, 5, 7]);
    expect(parseCpus("3-")).toBeNull();
    expect(parseCpus("5-3")).toBeNull();
    expect(formatCores([39])).toBe("core 39");
    expect(formatCores(null)).toBe("all cores");
    expect(formatCores([0, 1], 2)).toBe("all cores");
  });
});

describe("numbers and times", () => {
  it("have units and separators", () => {
    expect(count(68_680)).toBe("68,680");
    expect(bytes(1_234_000)).toBe("1.2 MB");
    expect(percent(0.034)).toBe("3.4 %");
    expect(percent(0.97)).toBe("97 %");
    expect(quantity(0.5, "s/s")).toBe("0.5 s/s");
    expect(quantity(5_000_000, "bytes")).toBe("5 MB");
    expect(quantity(554_662_412, "ns")).toBe("555 ms");
    expect(quantity(990, "permille")).toBe("99 %");
  });

  it("name a confidence", () => {
    expect(confidence(0.93)).toBe("confidence 93 %, almost certain");
    expect(confidence(0.5)).toBe("confidence 50 %, plausible");
    expect(confidence(0.07)).toBe("confidence 7 %, possible");
  });

  it("name durations with two units at most", () => {
    expect(duration(43_440_000)).toBe("12 h 04 m");
    expect(duration(48_000)).toBe("48 s");
    expect(duration(6_600)).toBe("6.6 s");
    expect(duration(350)).toBe("350 ms");
    expect(duration(999.4)).toBe("999 ms");
    expect(duration(999.6)).toBe("1 s");
    expect(duration(60_000)).toBe("1 m");
    expect(duration(3 * 86_400_000 + 3_600_000)).toBe("3 d 01 h");
  });

  it("are UTC by a switch", () => {
    const at = Date.UTC(2026, 10, 15, 3, 14, 7, 250);
    expect(moment(at, true)).toBe("2026-11-15 03:14:07");
    expect(moment(at, true, true)).toBe("2026-11-15 03:14:07.250");
    expect(zone(at, true)).toBe("UTC");
    expect(range(at - 250, at + 1750, true)).toBe("03:14:07 – 03:14:09");
    expect(range(at, at + 86_400_000, true)).toContain("2026-11-16");
  });

  it("have offsets where clocks were changed in between", () => {
    vi.stubEnv("TZ", "Europe/Berlin");
    const at = Date.UTC(2026, 9, 25, 0, 50);
    expect(range(at, at + 1_200_000, false)).toBe("02:50:00 UTC+02:00 – 02:10:00 UTC+01:00");
    expect(range(at, at + 60_000, false)).toBe("02:50:00 – 02:51:00");
    vi.unstubAllEnvs();
  });
});

describe("a moment of a recording", () => {
  const [since, at] = [Date.parse("2026-03-01T22:00:00Z"), Date.parse("2026-03-01T23:14:07Z")];

  it("has its day where the recording has several", () => {
    expect(stamp(at, true, { since, until: since + 3_600_000 })).toBe("23:14:07");
    expect(stamp(at, true, { since, until: since + 86_400_000 })).toBe("2026-03-01 23:14:07");
    expect(stamp(at, true, null)).toBe("23:14:07");
  });
});

describe("the filter's terms", () => {
  it("are read and written back", () => {
    const line = 'comm:kubelet pid:12 stack:"lru pages" kind:kernel cpu:0,3-7';
    const query = parseQuery(line) as Query;
    expect(query.filters.stack).toBe("lru pages");
    expect(query.cores).toEqual([0, 3, 4, 5, 6, 7]);
    expect(parseQuery(printQuery(query))).toEqual(query);
  });

  it("take a bare word for a process", () => {
    expect((parseQuery("python3.11") as Query).filters.comm).toBe("python3.11");
  });

  it("are refused with a message", () => {
    expect(parseQuery("kind:both")).toContain("kernel or user");
    expect(parseQuery("stack:(")).toContain("regular expression");
    expect(parseQuery("cpu:x")).toContain("0,3-7");
    expect(parseQuery("host:a")).toContain("not a filter");
  });
});

describe("a question", () => {
  it("leaves out empty parameters", () => {
    expect(queryString({ since: 1, comm: "", base: null, cpus: "0,1" })).toBe("?since=1&cpus=0%2C1");
    expect(queryString({})).toBe("");
  });
});
