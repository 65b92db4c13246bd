import { describe, expect, it } from "vitest";
import { code, escape, ticketMarkdown } from "../src/diagnosis/markdown";
import type { Diagnosis, Finding } from "../src/types";

const AT = Date.parse("2026-03-01T03:14:02Z");
const SPAN = { since: "", until: "", since_ms: AT, until_ms: AT + 7000 };

const FINDING = {
  cause: "zombie-memcgs",
  title: "Zombie memory cgroups",
  severity: "critical",
  confidence: 0.97,
  why_not_sure: ["no counts before 03:00"],
  summary: "kubelet held core 39",
  chain: [
    {
      role: "symptom",
      at_ms: AT,
      text: "eth0 was reset: NETDEV WATCHDOG <eth0> *timed out*",
      evidence: [
        { table: "cpu", column: "system", value: 0.97, how: "share", since_ms: AT, until_ms: AT + 500, cpu: 39 },
      ],
    },
    { role: "root_cause", at_ms: AT, text: "a crash loop", evidence: [] },
  ],
  culprit: {
    cpu: 39,
    comm: "kubelet",
    pid: 812,
    function: "mem_cgroup_nr_lru_pages",
    cmdline: "/usr/bin/a `b`",
    cgroup: null,
    container: null,
    container_name: null,
    pod: null,
    pod_name: null,
    owner: null,
  },
  remedies: [{ id: "disable-unit", text: "stop it", command: "exhume fix apply ecs", cost: "low risk", node: "n1" }],
} as unknown as Finding;

const DIAGNOSIS = {
  node: "node_1",
  verdict: "starved",
  sentence: "kubelet held core 39",
  window: SPAN,
  focus: SPAN,
  baseline: null,
  findings: [FINDING, { ...FINDING, severity: "info", cause: "noise", title: "Noise" }],
  failures: [{ at_ms: AT + 9000, kind: "job-failed", text: "train-7 died" }],
  blind_spots: [],
} as unknown as Diagnosis;

describe("a diagnosis as Markdown", () => {
  const link = "http://localhost:8420/#s0=1";
  const text = ticketMarkdown(DIAGNOSIS, { span: { since: AT, until: AT + 7000 }, link, utc: true });

  it("has the verdict, the window, the core, the culprit, the chain, the commands and the link", () => {
    expect(text).toContain("## STARVED: kubelet held core 39\n");
    expect(text).toContain("- **Window**: 2026-03-01 03:14:02 – 03:14:09 UTC\n");
    expect(text).toContain("- **Core**: `39`\n");
    expect(text).toContain("- **Process**: `kubelet (812)`\n");
    expect(text).toContain("(`zombie-memcgs`), confidence 97 %, almost certain\n");
    expect(text).toContain("1. 03:14:02 **symptom**: eth0 was reset");
    expect(text).toContain("   - `cpu.system` `97 %` (03:14:02, core 39)\n");
    expect(text).toContain("**root cause**: a crash loop");
    expect(text).toContain("  `exhume fix apply ecs`");
    expect(text).toContain("train-7 died");
    expect(text).toContain(`[Open it in exhume](<${link}>)\n`);
  });

  it("leaves out what is only worth knowing", () => {
    expect(text).not.toContain("noise");
  });

  it("quotes what comes from the node", () => {
    expect(text).toContain("NETDEV WATCHDOG \\<eth0\\> \\*timed out\\*");
    expect(text).toContain("- **Command**: `` /usr/bin/a `b` ``\n");
    expect(escape("a\n# b | [x](y) @all")).toBe("a \\# b \\| \\[x\\](y) @\u200ball");
    expect(code("a\n```b")).toBe("```` a ```b ````");
    expect(code("")).toBe("");
  });
});
