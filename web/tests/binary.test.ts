import { describe, expect, it } from "vitest";
import { readCores, readSlices, readSubsecond } from "../src/binary";

const ANY = { since: 0, until: 3000, cells: 3, measure: "busy", full: 1000, unrecorded: 65_535, states: ["user"] };

function frame(header: object, arrays: Uint8Array): ArrayBuffer {
  const plain = JSON.stringify(header);
  const padded = new TextEncoder().encode(plain.padEnd(Math.ceil(plain.length / 4) * 4));
  const bytes = new Uint8Array(4 + padded.length + arrays.length);
  new DataView(bytes.buffer).setUint32(0, padded.length, true);
  bytes.set(padded, 4);
  bytes.set(arrays, 4 + padded.length);
  return bytes.buffer;
}

describe("binary answers", () => {
  it("gives cores their two arrays", () => {
    const header = { ...ANY, cpus: [0, 7] };
    const grid = readCores(frame(header, Uint8Array.of(1, 0, 2, 0, 232, 3, 4, 0, 5, 0, 255, 255, 0, 0, 1, 0, 0, 2)));
    expect(grid.cpus).toEqual([0, 7]);
    expect([...grid.values]).toEqual([1, 2, 1000, 4, 5, 65_535]);
    expect([...grid.dominant]).toEqual([0, 0, 1, 0, 0, 2]);
  });

  it("gives the sub-second view its counts", () => {
    const header = { since: 0, until: 2000, column_ms: 1000, rows: 2, columns: 2, most: 70_000 };
    const counts = new Uint8Array(Uint32Array.of(1, 70_000, 0, 3, 0, 60_000, 0, 2).buffer);
    const grid = readSubsecond(frame(header, counts));
    expect([...grid.counts]).toEqual([1, 70_000, 0, 3]);
    expect([...grid.kernel]).toEqual([0, 60_000, 0, 2]);
  });

  it("gives slices their seven arrays", () => {
    const header = { since: 0, until: 2000, cpus: [3, 9], count: 2, pids: [7], tids: [8], comms: ["app"] };
    const times = [Uint32Array.of(0, 10_300), Uint32Array.of(10_300, 70_000)];
    const wide = [...times, Int32Array.of(0, -1), Int32Array.of(0, -1)];
    const narrow = [Uint16Array.of(1, 0), Uint16Array.of(1, 0)];
    const bytes = [...wide, ...narrow, Uint8Array.of(1, 4)].flatMap((each) => [...new Uint8Array(each.buffer)]);
    const found = readSlices(frame(header, Uint8Array.from(bytes)));
    expect([...found.start]).toEqual([0, 10_300]);
    expect([...found.length]).toEqual([10_300, 70_000]);
    expect([...found.thread]).toEqual([0, -1]);
    expect([...found.frame]).toEqual([0, -1]);
    expect([...found.caught]).toEqual([1, 0]);
    expect([...found.line]).toEqual([1, 0]);
    expect([...found.state]).toEqual([1, 4]);
    expect(() => readSlices(frame(header, Uint8Array.from(bytes.slice(1))))).toThrow("truncated");
  });

  it("reports a truncated answer", () => {
    const header = { ...ANY, cpus: [0] };
    expect(() => readCores(frame(header, Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8)))).toThrow("truncated");
    expect(() => readCores(new ArrayBuffer(2))).toThrow("truncated");
  });
});
