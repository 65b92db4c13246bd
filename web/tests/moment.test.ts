import { describe, expect, it } from "vitest";
import { parseMoment, type Reference } from "../src/timeline/moment";

const at = (text: string): number => Date.parse(text);

/** Two days that end at 04:00 UTC. */
const KNOWN: Reference = {
  now: at("2026-03-03T04:10:00Z"),
  whole: { since: at("2026-03-01T04:00:00Z"), until: at("2026-03-03T04:00:00Z") },
  live: false,
  utc: true,
};

describe("a time that is typed", () => {
  it("is the latest such time of the recording", () => {
    expect(parseMoment("03:14:07", KNOWN)).toBe(at("2026-03-03T03:14:07Z"));
    expect(parseMoment(" 03:14 ", KNOWN)).toBe(at("2026-03-03T03:14:00Z"));
    expect(parseMoment("23:59:59.5", KNOWN)).toBe(at("2026-03-02T23:59:59.500Z"));
    expect(parseMoment("04:00", KNOWN)).toBe(at("2026-03-02T04:00:00Z"));
  });

  it("may name its zone", () => {
    expect(parseMoment("03:14:07+02:00", KNOWN)).toBe(at("2026-03-03T01:14:07Z"));
    expect(parseMoment("2026-03-02T03:14:07-05:30", KNOWN)).toBe(at("2026-03-02T08:44:07Z"));
    expect(parseMoment("2026-03-02 03:14:07", KNOWN)).toBe(at("2026-03-02T03:14:07Z"));
  });

  it("may be relative, or a number of seconds", () => {
    expect(parseMoment("20m ago", KNOWN)).toBe(at("2026-03-03T03:50:00Z"));
    expect(parseMoment("1h30m ago", KNOWN)).toBe(at("2026-03-03T02:40:00Z"));
    expect(parseMoment("1.5h ago", KNOWN)).toBe(at("2026-03-03T02:40:00Z"));
    expect(parseMoment(`@${at("2026-03-02T00:00:01Z") / 1000}`, KNOWN)).toBe(at("2026-03-02T00:00:01Z"));
  });

  it("is the end of a live recording, not what it has not recorded yet", () => {
    const live = { ...KNOWN, live: true, now: KNOWN.whole.until + 1200 };
    expect(parseMoment("now", live)).toBe(KNOWN.whole.until - 1000);
    expect(parseMoment("@1799999999", live)).toContain("after the recording");
  });

  it.each(["03:74", "25:00", "10 ago", "10x ago", "yesterday", "2026-02-31 03:14", "@", "3"])(
    "%s is refused with what to write",
    (text) => {
      expect(parseMoment(text, KNOWN)).toMatch(/is not a time: write 03:14:07, 10m ago/);
    },
  );

  it("outside of the recording has a sentence with its ends", () => {
    expect(parseMoment("2026-02-28 03:14", KNOWN)).toBe(
      "2026-02-28 03:14:00 is before the recording, which begins at 2026-03-01 04:00:00",
    );
    expect(parseMoment("5m ago", KNOWN)).toBe(
      "2026-03-03 04:05:00 is after the recording, which ends at 2026-03-03 04:00:00",
    );
  });
});
