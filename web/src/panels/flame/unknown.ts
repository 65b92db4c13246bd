/** Why a frame has no name, as far as the recording shows it, and what would give it one. Pure. */
import type { FrameName } from "../../api";
import type { MissingSource, RecordingInfo } from "../../types";

export interface Nameless {
  why: string;
  remedy: string;
}

type Known = Pick<RecordingInfo, "missing" | "losses">;

/** What the symbols of programs are called in `missing`, and those of the kernel. */
const [USER_SYMBOLS, KERNEL_SYMBOLS] = ["user symbols", "kernel symbols"];
const ANONYMOUS = "[anon]";
const UNKNOWN = "[unknown]";
const JIT_MAPS =
  "let the runtime write /tmp/perf-PID.map: java -XX:+PreserveFramePointer with jcmd PID Compiler.perfmap, " +
  "node --perf-basic-prof, python -X perf (3.12 and later), DOTNET_PerfMapEnabled=1";

/** Null for a frame that has a name. Without a recording (in a report) only what the frame itself shows. */
export function namelessReason(frame: FrameName, recording: Known | null): Nameless | null {
  const { kind, module, name } = frame;
  if (kind === "kernel") return isAddress(name) ? kernelReason(missing(recording, KERNEL_SYMBOLS)) : null;
  if (name === ANONYMOUS && module === ANONYMOUS) {
    return {
      why: "Code that the program made at run time (a JIT compiler), and no perf map says what it is.",
      remedy: JIT_MAPS,
    };
  }
  if (name === UNKNOWN) return unknownReason(frame, recording);
  return isOffset(name) ? strippedReason(frame, recording) : null;
}

function isAddress(name: string): boolean {
  return /^0x[0-9a-f]+$/.test(name);
}

function isOffset(name: string): boolean {
  return /\+0x[0-9a-f]+$/.test(name);
}

function missing(recording: Known | null, name: string): MissingSource | undefined {
  return recording?.missing.find((each) => each.source === name);
}

function kernelReason(hidden: MissingSource | undefined): Nameless {
  if (hidden) return { why: `The kernel's symbols were not read: ${hidden.reason}.`, remedy: hidden.remedy };
  return {
    why: "The address is in no function of /proc/kallsyms: a module or BPF program that was unloaded.",
    remedy: "nothing to set; the address stays",
  };
}

function unknownReason({ kind }: FrameName, recording: Known | null): Nameless {
  if (kind === "") {
    return { why: "The recorder was stopped before it wrote this stack.", remedy: "nothing to set" };
  }
  const hidden = missing(recording, USER_SYMBOLS);
  if (hidden) return { why: `Programs were not looked into: ${hidden.reason}.`, remedy: hidden.remedy };
  const lost = recording?.losses.filter((each) => ["lost-stacks", "lost-mappings"].includes(each.kind)) ?? [];
  const why =
    "The address is in no file that the process had mapped: it ended before it was read, or its code keeps no " +
    "frame pointers and the stack could not be followed.";
  return {
    why: [why, ...lost.map((each) => `Some were lost: ${each.text}.`)].join(" "),
    remedy: "build the program with -fno-omit-frame-pointer; nothing helps for one that ends within a second",
  };
}

function strippedReason({ module }: FrameName, recording: Known | null): Nameless {
  const file = module.slice(module.lastIndexOf("/") + 1);
  const refused = recording?.losses.find(
    (each) => each.kind.startsWith("symbols-") && file !== "" && each.text.includes(file),
  );
  if (refused) {
    const later = refused.kind === "symbols-deferred";
    return { why: `${refused.text}.`, remedy: later ? "it is read later: select a later time" : "nothing to set" };
  }
  return {
    why: `${file || "The file"} has no symbol here: it is stripped.`,
    remedy:
      "install its debug symbols on the node, under /usr/lib/debug (Debian and Ubuntu: the package's -dbgsym; " +
      "Fedora and RHEL: dnf debuginfo-install), or ship the program unstripped",
  };
}
