import { describe, expect, it } from "vitest";
import { parseAddress, printAddress } from "../src/fleet/address";
import { readAttributes, readCells, valueOf } from "../src/fleet/columns";
import { folded, measured } from "../src/fleet/format";
import type { FleetMeasure } from "../src/types";

/** A header in JSON as the server frames it, then bytes. */
function framed(header: unknown, body: Uint8Array): ArrayBuffer {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const size = text.length + ((4 - ((4 + text.length) % 4)) % 4);
  const whole = new Uint8Array(4 + size + body.length).fill(32);
  new DataView(whole.buffer).setUint32(0, size, true);
  whole.set(text, 4);
  whole.set(body, 4 + size);
  return whole.buffer;
}

describe("cells", () => {
  const header = { at: 0, roster: "r", nodes: 2, names: ["a", "b"], measures: ["x", "y"], silent: 0, damaged: 0 };
  const body = new Uint8Array(Float32Array.from([1, 2, 3, NaN]).buffer);

  it("are a column for each measure", () => {
    const { values, names } = readCells(framed(header, body));
    expect(names).toEqual(["a", "b"]);
    expect([...(values.get("x") ?? [])]).toEqual([1, 2]);
    expect([...(values.get("y") ?? [])]).toEqual([3, NaN]);
  });

  it("are refused where they are cut off", () => {
    expect(() => readCells(framed(header, body.subarray(0, 12)))).toThrow("truncated");
  });
});

describe("attributes", () => {
  it("have columns of one, two and no bytes", () => {
    const columns = [
      { key: "zone", values: ["a", "b"], width: 1, offset: 0 },
      { key: "serial", values: ["s1"], width: 2, offset: 4 },
      { key: "os", values: ["Debian"], width: 0, offset: 8 },
    ];
    const body = Uint8Array.from([2, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    const found = readAttributes(framed({ at: 0, roster: "r", nodes: 3, columns, keys: [] }, body));
    const of = (key: string): string[] => [0, 1, 2].map((node) => valueOf(found.columns.get(key)!, node));
    expect(of("zone")).toEqual(["b", "", "a"]);
    expect(of("serial")).toEqual(["", "s1", ""]);
    expect(of("os")).toEqual(["Debian", "Debian", "Debian"]);
  });
});

describe("the address", () => {
  it("has all of the state and nothing more", () => {
    expect(printAddress(parseAddress(""))).toBe("");
    const link =
      "#at=1784066400000&group=unit.ecs.service&measure=nic_resets&order=worst&pick=zone;b" +
      "&node=node-07&reach=hour&cause=zombie-memcgs&utc=1";
    expect(printAddress(parseAddress(link))).toBe(link);
  });

  it("keeps values with any character, and hours whole", () => {
    const state = { ...parseAddress(""), pick: { key: "os", value: "a;b %3B & c" } };
    expect(parseAddress(printAddress(state)).pick).toEqual(state.pick);
    expect(parseAddress("#pick=zone;").pick).toEqual({ key: "zone", value: "" });
    expect(parseAddress("#at=1784066412345").at).toBe(1784066400000);
    expect(parseAddress("#order=nonsense&at=x").order).toBe("name");
  });
});

it("values have the unit of their measure", () => {
  const measure = (unit: string, fold: "max" | "sum" = "max"): FleetMeasure => ({
    name: "x",
    title: "x",
    unit,
    fold,
    full: 1,
    scale: "log",
    hue: "",
  });
  expect(measured(0.97, measure("share"))).toBe("97 %");
  expect(measured(6.6, measure("s"))).toBe("6.6 s");
  expect(measured(8 * 86_400, measure("s"))).toBe("8 d");
  expect(measured(68_680, measure(""))).toBe("68,680");
  expect(measured(NaN, measure(""))).toBe("no data");
  expect(folded(measure("", "sum"))).toContain("sum");
});
