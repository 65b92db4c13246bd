import { describe, expect, it } from "vitest";
import { parseAddress, printAddress } from "../src/address";
import { flameQuery, NO_FILTERS } from "../src/api";
import { automaticShift } from "../src/state";

describe("two recordings", () => {
  it("of the same time stay with the clock, others begin together", () => {
    expect(automaticShift({ since: 1000, until: 5000 }, { since: 4000, until: 9000 })).toBe(0);
    expect(automaticShift({ since: 1000, until: 5000 }, { since: 5000, until: 9000 })).toBe(4000);
    expect(automaticShift({ since: 5000, until: 9000 }, { since: 1000, until: 2000 })).toBe(-4000);
  });

  it("are moved by what is in the address", () => {
    expect(parseAddress("#shift=-4000").shift).toBe(-4000);
    expect(parseAddress("#shift=x").shift).toBe(null);
    expect(printAddress(parseAddress("#shift=0"))).toBe("#shift=0");
  });

  it("are compared at the moved time", () => {
    const scope = { since: 10, until: 20, cpus: "", filters: NO_FILTERS, base: { since: 110, until: 120 } };
    expect(flameQuery({ ...scope, baseline: "other" })).toContain("base_since=110&base_until=120");
    expect(flameQuery({ ...scope, baseline: "before" })).not.toContain("base_since");
  });
});
