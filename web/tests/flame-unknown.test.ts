import { describe, expect, it } from "vitest";
import { namelessReason } from "../src/panels/flame/unknown";

const NOTHING = { missing: [], losses: [] };
const hidden = (source: string): typeof NOTHING & { missing: object[] } =>
  ({ ...NOTHING, missing: [{ source, reason: "REASON", remedy: "REMEDY" }] }) as never;
const lost = (kind: string, text: string): typeof NOTHING =>
  ({ ...NOTHING, losses: [{ source: "stacks", kind, count: 1, text }] }) as never;

describe("why a frame has no name", () => {
  it("is not asked of one that has a name", () => {
    for (const [kind, module, name] of [
      ["kernel", "[kernel]", "vfs_read"],
      ["user", "/usr/bin/node", "main"],
      ["jit", "perf-map", "py::run"],
      ["comm", "", "kubelet"],
    ]) {
      expect(namelessReason({ kind, module, name }, NOTHING)).toBeNull();
    }
  });

  it("is what the recorder could not read", () => {
    const kernel = { kind: "kernel", module: "[kernel]", name: "0xffffffff81000000" };
    expect(namelessReason(kernel, hidden("kernel symbols"))).toMatchObject({ remedy: "REMEDY" });
    expect(namelessReason(kernel, hidden("kernel symbols"))!.why).toContain("REASON");
    expect(namelessReason(kernel, hidden("user symbols"))!.why).toContain("kallsyms");
    const user = { kind: "user", module: "[unknown]", name: "[unknown]" };
    expect(namelessReason(user, hidden("user symbols"))).toMatchObject({ remedy: "REMEDY" });
  });

  it("differs for a JIT, a stripped file, a process that is gone, and a stack that was not written", () => {
    const reasons = [
      { kind: "user", module: "[anon]", name: "[anon]" },
      { kind: "user", module: "/usr/lib/libfoo.so.1", name: "libfoo.so.1+0x1f00" },
      { kind: "user", module: "[unknown]", name: "[unknown]" },
      { kind: "", module: "", name: "[unknown]" },
    ].map((frame) => namelessReason(frame, NOTHING)!);
    expect(new Set(reasons.map((each) => each.why)).size).toBe(4);
    expect(reasons[0].remedy).toContain("perf-PID.map");
    expect(reasons[1].why).toContain("libfoo.so.1");
    expect(reasons[1].remedy).toContain("/usr/lib/debug");
    expect(reasons[2].remedy).toContain("frame-pointer");
  });

  it("names the loss where there was one", () => {
    const stripped = { kind: "user", module: "/opt/app", name: "app+0x10" };
    const reason = (file: string): string =>
      namelessReason(stripped, lost("symbols-timeout", `${file}: it hangs`))!.why;
    expect(reason("/opt/app")).toContain("it hangs");
    expect(reason("/opt/other")).toContain("stripped");
    const unknown = { kind: "user", module: "[unknown]", name: "[unknown]" };
    expect(namelessReason(unknown, lost("lost-stacks", "beyond the share"))!.why).toContain("beyond the share");
  });

  it("is given in a report too, which has no recording", () => {
    expect(namelessReason({ kind: "user", module: "[anon]", name: "[anon]" }, null)).not.toBeNull();
  });
});
