import { describe, expect, it } from "vitest";
import { NO_FILTERS } from "../src/api";
import { DARK, LIGHT, type Rgb } from "../src/theme";
import { rowsFor } from "../src/timeline/heat";
import { NAME_INK, pixelsOf, sliceColour, type SliceScene } from "../src/timeline/slices/draw";
import {
  byThread,
  describeSlice,
  hueOfProcess,
  neighbour,
  planSlices,
  runnersIn,
  sliceAt,
  sliceText,
} from "../src/timeline/slices/model";
import { parseTrack, trackOf } from "../src/timeline/slices/track-key";
import type { Slices } from "../src/types";
import { contrast } from "./colours";

const STATES = ["user", "system", "softirq", "unknown", "idle"];
const [USER, SYSTEM, , , IDLE] = STATES.keys();

type Row = [line: number, startMs: number, lengthMs: number, thread: number, state: number];

/** Two cores over a second; threads 0 and 1 are of process 7, thread 2 is process 9. */
function slicesOf(rows: Row[], filtered = false): Slices {
  return {
    since: 1000,
    until: 2000,
    cpus: [2, 5],
    states: STATES,
    pids: [7, 7, 9],
    tids: [7, 8, 9],
    comms: ["app", "worker", "web"],
    frames: ["main", "vfs_read"],
    count: rows.length,
    samples: rows.length,
    period_us: 10_309,
    filtered,
    start: Uint32Array.from(rows, (row) => row[1] * 1000),
    length: Uint32Array.from(rows, (row) => row[2] * 1000),
    thread: Int32Array.from(rows, (row) => row[3]),
    frame: Int32Array.from(rows, (row) => (row[3] < 0 ? -1 : row[4] === 1 ? 1 : 0)),
    caught: Uint16Array.from(rows, (row) => (row[3] < 0 ? 0 : 1)),
    line: Uint16Array.from(rows, (row) => row[0]),
    state: Uint8Array.from(rows, (row) => row[4]),
  };
}

const some = slicesOf([
  [0, 100, 30, 0, USER],
  [0, 130, 20, 1, SYSTEM],
  [0, 150, 50, -1, IDLE],
  [0, 300, 10, 2, USER],
  [1, 0, 500, 0, SYSTEM],
]);

describe("slices", () => {
  it("are found by core and moment", () => {
    expect(sliceAt(some, 2, 1100)).toBe(0);
    expect(sliceAt(some, 2, 1129.9)).toBe(0);
    expect(sliceAt(some, 2, 1130)).toBe(1);
    expect(sliceAt(some, 2, 1160)).toBe(2);
    expect(sliceAt(some, 5, 1100)).toBe(4);
    // Not sampled, before and behind all slices, and a core that is not there.
    expect([sliceAt(some, 2, 1250), sliceAt(some, 2, 1050), sliceAt(some, 5, 1600), sliceAt(some, 3, 1100)]).toEqual([
      -1, -1, -1, -1,
    ]);
  });

  it("have neighbours, also across time that was not sampled", () => {
    expect(neighbour(some, 2, 1160, 1)).toBe(3);
    expect(neighbour(some, 2, 1160, -1)).toBe(1);
    expect(neighbour(some, 2, 1250, -1)).toBe(2);
    expect(neighbour(some, 2, 1305, 1)).toBe(-1);
    expect(neighbour(some, 5, 1100, -1)).toBe(-1);
  });

  it("say who ran where, in which state and function", () => {
    expect(describeSlice(some, 1)).toEqual({
      since: 1130,
      until: 1150,
      cpu: 2,
      state: "system",
      pid: 7,
      tid: 8,
      comm: "worker",
      frame: "vfs_read",
      samples: 1,
    });
    expect(sliceText(describeSlice(some, 1))).toBe("worker 7, kernel, in vfs_read, 20 ms");
    expect(sliceText(describeSlice(some, 2))).toBe("idle for 50 ms");
  });

  it("are summed by process within the view", () => {
    const [first, second] = runnersIn(some, { since: 1000, until: 2000 });
    expect(first).toMatchObject({ pid: 7, comm: "app", threads: 2, cpus: [2, 5], ms: 550, kernelMs: 520 });
    expect(first.longest).toMatchObject({ cpu: 5, since: 1000, until: 1500 });
    expect(second).toMatchObject({ pid: 9, ms: 10, kernelMs: 0 });
    expect(runnersIn(some, { since: 1120, until: 1140 })[0]).toMatchObject({ pid: 7, ms: 40, kernelMs: 30 });
    expect(runnersIn(some, { since: 1990, until: 2000 })).toEqual([]);
  });

  it("join threads of one process that follow each other into its longest stretch", () => {
    const [app] = runnersIn(slicesOf([[0, 100, 30, 0, USER], [0, 130, 20, 1, SYSTEM], [0, 160, 30, 0, USER]]), {
      since: 1000,
      until: 2000,
    });
    expect(app.longest).toMatchObject({ since: 1100, until: 1150 });
  });

  it("are requested with room to pan, and kept while they cover the view", () => {
    const whole = { since: 0, until: 1_000_000 };
    const first = planSlices({ since: 10_000, until: 15_000 }, whole, null);
    expect(first).toEqual({ since: 8700, until: 16_300 });
    expect(planSlices({ since: 11_000, until: 16_000 }, whole, first)).toBe(first);
    expect(planSlices({ since: 12_000, until: 17_000 }, whole, first)).not.toBe(first);
    // Much too long for a closer view, and never outside of the recording.
    expect(planSlices({ since: 12_000, until: 13_000 }, whole, first)).not.toBe(first);
    const short = { since: 1000, until: 9500 };
    expect(planSlices({ since: 0, until: 9000 }, short, null)).toEqual(short);
    const widest = planSlices({ since: 50_000, until: 60_000 }, whole, null);
    expect(widest.until - widest.since).toBeLessThanOrEqual(20_000);
  });
});

function sceneOf(slices: Slices, patch: Partial<SliceScene> = {}): SliceScene {
  const view = { since: slices.since, until: slices.until };
  return { rows: rowsFor(slices.cpus), view, look: LIGHT, slices, marked: null, ...patch };
}

function packed([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

describe("their drawing", () => {
  it("has the colour of the process, a stripe in the kernel, and nothing where the core was not sampled", () => {
    const { body, stripe } = pixelsOf(sceneOf(some), 1000);
    expect(body[110]).toBe(packed(sliceColour(7, "user", LIGHT)));
    expect(stripe[110]).toBe(0);
    expect(body[140]).toBe(packed(sliceColour(7, "system", LIGHT)));
    expect(stripe[140]).not.toBe(0);
    expect(body[170]).toBe(packed(LIGHT.ground));
    expect(body[250]).toBe(0);
    expect(body[1000 + 400]).toBe(packed(sliceColour(7, "system", LIGHT)));
    expect(body[1000 + 600]).toBe(0);
  });

  it("keeps a slice that is thinner than a pixel, also next to idle time", () => {
    const thin = slicesOf([[0, 0, 500, -1, IDLE], [0, 500, 1, 2, USER], [0, 501, 499, -1, IDLE]]);
    const { body } = pixelsOf(sceneOf(thin), 50);
    expect([...body.slice(0, 50)].filter((colour) => colour === packed(sliceColour(9, "user", LIGHT)))).toHaveLength(1);
  });

  it("of pooled cores shows those that ran", () => {
    const rows = { cpus: [[2, 5]], tops: [0, 1], height: 1, pinned: 0 };
    const { body } = pixelsOf(sceneOf(some, { rows }), 1000);
    expect(body[170]).toBe(packed(sliceColour(7, "system", LIGHT)));
  });

  it("fades what is not highlighted", () => {
    expect(sliceColour(9, "user", LIGHT, 9)).toEqual(sliceColour(9, "user", LIGHT));
    expect(sliceColour(7, "user", LIGHT, 9)).not.toEqual(sliceColour(7, "user", LIGHT));
  });

  it("gives processes with neighbouring numbers hues far apart, and names that can be read on all", () => {
    for (let pid = 1; pid < 400; pid++) {
      const apart = Math.abs(hueOfProcess(pid) - hueOfProcess(pid + 1));
      expect(Math.min(apart, 360 - apart)).toBeGreaterThan(60);
      for (const look of [LIGHT, DARK]) {
        for (const state of ["user", "system", "softirq", "unknown"]) {
          expect(contrast(sliceColour(pid, state, look), NAME_INK)).toBeGreaterThan(4.5);
        }
      }
    }
  });
});

describe("tracks", () => {
  it("have a row for each thread, the one that ran longest first, with its cores", () => {
    const found = byThread(some, { since: 1000, until: 2000 }, 2);
    expect(found.rows).toEqual([
      { pid: 7, tid: 7, comm: "app", ms: 530 },
      { pid: 7, tid: 8, comm: "worker", ms: 20 },
    ]);
    expect(found.left).toBe(1);
    expect([...found.line]).toEqual([0, 0, 1]);
    expect([...found.start]).toEqual([0, 100_000, 130_000]);
    expect(found.core).toEqual([5, 2, 2]);
    expect(sliceAt(found, 1, 1140)).toBe(2);
  });

  it("find a slice below a shorter one that began later", () => {
    const moved = slicesOf([[0, 0, 500, 0, SYSTEM], [1, 100, 10, 0, USER]]);
    const found = byThread(moved, { since: 1000, until: 2000 }, 2);
    expect([sliceAt(found, 0, 1105), sliceAt(found, 0, 1300), sliceAt(found, 0, 1600)]).toEqual([1, 0, -1]);
  });

  it("can be of one thread", () => {
    const view = { since: 1000, until: 1305 };
    expect(byThread(some, view, 12, 9).rows).toEqual([{ pid: 9, tid: 9, comm: "web", ms: 5 }]);
    expect(byThread(some, view, 12, 1).rows).toEqual([]);
  });

  it("are named in the address by what they are of", () => {
    expect(parseTrack("pid:4711")).toMatchObject({ filters: { ...NO_FILTERS, pid: "4711" }, tid: null });
    expect(parseTrack("thread:4711/12")).toMatchObject({ filters: { ...NO_FILTERS, pid: "4711" }, tid: 12 });
    expect(parseTrack("pod:shop/web-0:1")?.filters.pod).toBe("shop/web-0:1");
    expect([parseTrack("pid:x"), parseTrack("pid:"), parseTrack("stack:a"), parseTrack("")]).toEqual([
      null,
      null,
      null,
      null,
    ]);
    expect(trackOf({ ...NO_FILTERS, container: "9f2a", comm: "web" })).toBe("container:9f2a");
    expect(trackOf({ ...NO_FILTERS, stack: "lru" })).toBe(null);
  });
});
