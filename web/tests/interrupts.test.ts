import { describe, expect, it } from "vitest";
import { countsByCore } from "../src/panels/interrupts";
import type { InterruptLine } from "../src/types";

function line(irq: string, per_cpu: [number, number][]): InterruptLine {
  const count = per_cpu.reduce((sum, [, many]) => sum + many, 0);
  const facts = { name: "", device: null, queue: null, affinity: null, per_second: 0, worst: 0, worst_at: 0 };
  return { irq, count, per_cpu, ...facts };
}

describe("interrupts by core", () => {
  it("are summed over the lines, the most first", () => {
    expect(countsByCore([])).toEqual([]);
    const lines = [line("24", [[2, 50], [0, 10]]), line("25", [[7, 45], [0, 30]])];
    expect(countsByCore(lines)).toEqual([[2, 50], [7, 45], [0, 40]]);
  });

  it("are in the order of the cores where they are equal", () => {
    expect(countsByCore([line("24", [[9, 5], [3, 5]])])).toEqual([[3, 5], [9, 5]]);
  });
});
