import { describe, expect, it } from "vitest";
import { stepAfter, storyOf } from "../src/diagnosis/story";
import type { ChainLink, Culprit, Evidence, Finding, Remedy } from "../src/types";

function evidence(since_ms: number, cpu: number | null): Evidence {
  return { table: "cpu", column: "system", since_ms, until_ms: since_ms + 5000, cpu } as Evidence;
}

function link(role: ChainLink["role"], at_ms: number, found: Evidence[]): ChainLink {
  return { role, at: "", at_ms, text: `the ${role}`, evidence: found };
}

function finding(chain: ChainLink[], remedies: Partial<Remedy>[]): Finding {
  return { chain, culprit: { cpu: null, comm: null, function: null } as Culprit, remedies } as Finding;
}

describe("the story of a finding", () => {
  const chain = [
    link("root_cause", 9000, []),
    link("symptom", 1000, [evidence(2000, null), evidence(3000, 7)]),
    link("mechanism", 4000, [evidence(4000, null)]),
  ];

  it("goes from the symptom to the remedies", () => {
    const steps = storyOf(finding(chain, [{ id: "stop-unit", text: "stop it" }, { id: "reboot", text: "" }]));
    expect(steps.map((each) => each.role)).toEqual(["symptom", "mechanism", "root_cause", "remedy"]);
    expect(steps[3].text).toBe("stop it");
    expect(steps[3].span).toBeNull();
    expect(steps[3].remedies).toHaveLength(2);
  });

  it("shows the shortest evidence, of equals the one that names a core", () => {
    const long = { ...evidence(0, 3), until_ms: 60_000 };
    const [step] = storyOf(finding([link("symptom", 1000, [long, evidence(2000, null), evidence(3000, 7)])], []));
    expect([step.span, step.cpu]).toEqual([{ since: 3000, until: 8000 }, 7]);
  });

  it("shows the first evidence where none is better, and the moment of a link without any", () => {
    const [symptom, mechanism, root] = storyOf(finding(chain, []));
    expect([symptom.span, symptom.cpu]).toEqual([{ since: 3000, until: 8000 }, 7]);
    expect([mechanism.span, mechanism.cpu]).toEqual([{ since: 4000, until: 9000 }, null]);
    expect([root.span, root.cpu]).toEqual([{ since: 9000, until: 10_000 }, null]);
  });

  it("ends at both ends", () => {
    expect(stepAfter(0, 1, 3)).toBe(1);
    expect(stepAfter(3, 1, 3)).toBeNull();
    expect(stepAfter(1, -1, 3)).toBeNull();
    expect(stepAfter(0, -1, 3)).toBeNull();
  });
});
