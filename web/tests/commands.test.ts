import { expect, test } from "vitest";
import { bundleCommand, isLoopback, noteCommand, openCommands, quoted } from "../src/commands";

test("a plain word stays as it is, anything else is one word of a shell", () => {
  expect(quoted("train-7")).toBe("train-7");
  expect(quoted("it's $HOME; `rm`")).toBe("'it'\\''s $HOME; `rm`'");
  expect(quoted("")).toBe("''");
});

test("a note names its moment to the millisecond, in one line", () => {
  expect(noteCommand(1_741_025_784_350, "deploy\n rolled  back ")).toBe(
    "exhume event add --at 2025-03-03T18:16:24.350Z 'deploy rolled back'",
  );
  expect(noteCommand(0, " ")).toContain("'what happened'");
});

test("a bundle has the incident of a moment", () => {
  expect(bundleCommand(1_741_025_784_350)).toBe(
    "exhume export bundle --at 2025-03-03T18:16:24.350Z -o incident.exhume.zip",
  );
});

test("a link to loopback is for this machine alone", () => {
  expect(["localhost", "127.0.0.1", "127.8.0.2", "[::1]", "exhume.localhost"].every(isLoopback)).toBe(true);
  expect(["10.0.0.7", "node-7", "127.example.org", "[fe80::1]"].some(isLoopback)).toBe(false);
});

test("a bundle is served, other files are imported first", () => {
  expect(openCommands("incident.exhume.zip")).toEqual(["exhume serve --dir incident.exhume.zip"]);
  expect(openCommands("perf of node 7.data")).toEqual([
    "exhume import 'perf of node 7.data' --dir imported",
    "exhume serve --dir imported",
  ]);
  expect(openCommands("--listen.exhume.zip")).toEqual(["exhume serve --dir ./--listen.exhume.zip"]);
});
