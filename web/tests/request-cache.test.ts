import { describe, expect, it } from "vitest";
import { RequestCache } from "../src/request-cache";

function reader(): { made: string[]; aborted: string[]; answer: Map<string, () => void>; make: Make } {
  const made: string[] = [];
  const aborted: string[] = [];
  const answer = new Map<string, () => void>();
  const make: Make = (key) => (signal) => {
    made.push(key);
    signal.addEventListener("abort", () => aborted.push(key));
    return new Promise((resolve) => answer.set(key, () => resolve(key)));
  };
  return { made, aborted, answer, make };
}

type Make = (key: string) => (signal: AbortSignal) => Promise<string>;

describe("shared answers", () => {
  it("are read once for all who ask", async () => {
    const { made, answer, make } = reader();
    const shared = new RequestCache<string>(4);
    const both = Promise.all([shared.read("a", make("a")), shared.read("a", make("a"))]);
    answer.get("a")?.();
    expect(await both).toEqual(["a", "a"]);
    expect(made).toEqual(["a"]);
  });

  it("are aborted by the last reader, not before", () => {
    const { made, aborted, make } = reader();
    const shared = new RequestCache<string>(4);
    const [one, two] = [new AbortController(), new AbortController()];
    void shared.read("a", make("a"), one.signal);
    void shared.read("a", make("a"), two.signal);
    one.abort();
    expect(aborted).toEqual([]);
    two.abort();
    expect(aborted).toEqual(["a"]);
    void shared.read("a", make("a"));
    expect(made).toEqual(["a", "a"]);
  });

  it("that failed are asked again, old ones are forgotten", async () => {
    const shared = new RequestCache<string>(2);
    let failures = 0;
    const failing = (): Promise<string> => Promise.reject(new Error(`failure ${++failures}`));
    await expect(shared.read("x", failing)).rejects.toThrow("failure 1");
    await expect(shared.read("x", failing)).rejects.toThrow("failure 2");
    let reads = 0;
    const count = (): Promise<string> => Promise.resolve(String(++reads));
    for (const key of ["a", "b", "c", "a"]) await shared.read(key, count);
    expect(reads).toBe(4);
  });
});
