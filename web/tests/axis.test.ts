import { describe, expect, it, vi } from "vitest";
import { centred, panned, planCells, stepFor, ticks, within, zoomed, type Plan } from "../src/timeline/axis";
import { dragged } from "../src/timeline/frame";

const HOUR = 3_600_000;
const whole = { since: 1_700_000_000_400, until: 1_700_000_000_400 + 12 * HOUR };
const length = (span: { since: number; until: number }): number => span.until - span.since;

describe("the plan of cells", () => {
  it("takes round steps, never more cells than pixels", () => {
    const plan = planCells(whole, whole, 1200, null, 1000);
    expect(plan.step).toBe(60_000);
    expect(plan.cells).toBe(720);
    expect(plan).toMatchObject(whole);
  });

  it("asks for no cell that is shorter than what was measured", () => {
    const view = { since: whole.since + HOUR, until: whole.since + HOUR + 10_000 };
    expect(planCells(view, whole, 1200, null, 1000).step).toBe(1000);
    expect(planCells(view, whole, 1200, null, 100).step).toBe(100);
  });

  it("lies on round moments, so that the same second is in the same cell after panning", () => {
    const view = { since: whole.since + HOUR + 123, until: whole.since + HOUR + 600_123 };
    const plan = planCells(view, whole, 1200, null, 1000);
    expect(plan.since % plan.step).toBe(0);
    expect(plan.until % plan.step).toBe(0);
    expect(plan.since).toBeLessThan(view.since);
    expect(plan.until).toBeGreaterThan(view.until);
    expect(plan.cells * plan.step).toBe(plan.until - plan.since);
  });

  it("stays the same while the view moves inside of it, and changes when it leaves", () => {
    const view = { since: whole.since + HOUR, until: whole.since + HOUR + 600_000 };
    const first = planCells(view, whole, 1200, null, 1000);
    const near = panned(view, whole, 120_000);
    expect(planCells(near, whole, 1200, first, 1000)).toBe(first);
    const far = panned(view, whole, HOUR);
    expect(planCells(far, whole, 1200, first, 1000)).not.toBe(first);
  });

  it.each([
    { shown: 600_000, behind: 1000, asked: 60 },
    { shown: 12 * HOUR, behind: 5000, asked: 12 },
  ])("grows with a live recording: $shown ms in view", ({ shown, behind, asked }) => {
    let plan: Plan | null = null;
    let questions = 0;
    for (let second = 0; second < 60; second++) {
      const now = { since: whole.since, until: whole.until + second * 1000 };
      const next: Plan = planCells({ since: now.until - shown, until: now.until }, now, 1200, plan, 1000);
      if (next !== plan) questions++;
      expect(next.until).toBeGreaterThan(now.until - behind);
      plan = next;
    }
    expect(questions).toBe(asked);
  });

  it("never asks for more than the server answers", () => {
    const year = { since: 0, until: 365 * 24 * HOUR };
    for (const view of [year, { since: 0, until: 3000 }, { since: 5 * HOUR, until: 29 * HOUR }]) {
      for (const width of [200, 1200, 3800]) {
        const plan = planCells(view, year, width, null, 100);
        expect(plan.cells).toBeGreaterThan(0);
        expect(plan.cells).toBeLessThanOrEqual(4000);
      }
    }
  });
});

describe("moving", () => {
  it("stays within the recording and keeps its length", () => {
    const view = { since: whole.since + 1000, until: whole.since + 61_000 };
    const left = panned(view, whole, -HOUR);
    expect(left).toEqual({ since: whole.since, until: whole.since + 60_000 });
    expect(length(panned(view, whole, 99 * HOUR))).toBe(60_000);
    expect(within({ since: 0, until: 99 * HOUR }, { since: 5, until: 10 })).toEqual({ since: 5, until: 10 });
    expect(length(centred(whole.until, 10_000, whole))).toBe(10_000);
  });

  it("zooms around a moment that keeps its place", () => {
    const view = { since: whole.since + HOUR, until: whole.since + 2 * HOUR };
    const around = view.since + HOUR / 4;
    const closer = zoomed(view, whole, 0.5, around);
    expect(length(closer)).toBe(HOUR / 2);
    expect((around - closer.since) / length(closer)).toBeCloseTo(0.25);
    expect(length(zoomed(view, whole, 1e-9, around))).toBe(200);
    expect(zoomed(view, whole, 1e9, around)).toEqual(whole);
  });

  it("drags the frame of the overview, or one of its ends", () => {
    const view = { since: whole.since + HOUR, until: whole.since + 2 * HOUR };
    expect(dragged(view, whole, "both", HOUR)).toEqual({ since: view.since + HOUR, until: view.until + HOUR });
    expect(dragged(view, whole, "since", 5 * HOUR).since).toBe(view.until - 200);
    expect(dragged(view, whole, "until", 99 * HOUR).until).toBe(whole.until);
  });
});

describe("ticks", () => {
  it("are round, apart, and within the view", () => {
    const view = { since: Date.UTC(2026, 0, 1, 23, 57), until: Date.UTC(2026, 0, 2, 0, 7) };
    const found = ticks(view, 900, true);
    expect(found.map((tick) => tick.label)).toContain("23:58");
    expect(found.filter((tick) => tick.day).map((tick) => tick.label)).toEqual(["2026-01-02"]);
    expect(found.every((tick) => tick.at >= view.since && tick.at < view.until)).toBe(true);
    expect(found.length).toBeLessThanOrEqual(11);
  });

  it("show parts of a second only where there are any", () => {
    const view = { since: Date.UTC(2026, 0, 1), until: Date.UTC(2026, 0, 1) + 2000 };
    expect(ticks(view, 900, true).map((tick) => tick.label)).toContain("00:00:00.200");
  });

  const shownIn = (timezone: string, since: number, hours: number, width: number): string[] => {
    vi.stubEnv("TZ", timezone);
    try {
      const found = ticks({ since, until: since + hours * HOUR }, width, false);
      expect(found.every((tick, i) => i === 0 || tick.at > found[i - 1].at)).toBe(true);
      return found.map((tick) => tick.label);
    } finally {
      vi.unstubAllEnvs();
    }
  };

  it("stay round, with the offset, when clocks are changed", () => {
    // Berlin: 2026-03-29 from 02:00 to 03:00, 2026-10-25 from 03:00 to 02:00.
    const spring = shownIn("Europe/Berlin", Date.UTC(2026, 2, 28, 20, 30), 32, 1440);
    expect(spring).toEqual([
      ...["22:00", "2026-03-29", "04:00 UTC+02:00", "06:00", "08:00", "10:00", "12:00", "14:00", "16:00", "18:00"],
      ...["20:00", "22:00", "2026-03-30", "02:00", "04:00", "06:00"],
    ]);
    const autumn = shownIn("Europe/Berlin", Date.UTC(2026, 9, 24, 18), 60, 1000);
    expect(autumn.filter((label) => label.startsWith("2026"))).toEqual(["2026-10-25", "2026-10-26", "2026-10-27"]);
    expect(autumn).toContain("06:00 UTC+01:00");
    const twice = shownIn("Europe/Berlin", Date.UTC(2026, 9, 25, 0, 50), 1 / 3, 900);
    expect(twice.slice(4, 7)).toEqual(["02:58", "02:00 UTC+01:00", "02:02"]);
    // Half an hour, and a midnight that is not there.
    expect(shownIn("Australia/Lord_Howe", Date.UTC(2026, 3, 4, 14), 3, 300)).toContain("02:00 UTC+10:30");
    expect(shownIn("America/Havana", Date.UTC(2026, 2, 8, 3, 30), 4, 600)[1]).toBe("2026-03-08 UTC−04:00");
  });

  it("know the least step that fits", () => {
    expect(stepFor(60_000, 100, 100)).toBe(1000);
    expect(stepFor(400 * 24 * HOUR, 10, 100)).toBe(40 * 24 * HOUR);
  });
});
