/** Answers that several parts of the page ask for at once are read once, and the latest ones are kept. */

interface Kept<Value> {
  promise: Promise<Value>;
  abort: AbortController;
  waiting: number;
  done: boolean;
}

/** Reads by key; an abort counts only when nobody waits for the answer any more. */
export class Shared<Value> {
  private readonly kept = new Map<string, Kept<Value>>();

  constructor(private readonly most: number) {}

  read(key: string, make: (signal: AbortSignal) => Promise<Value>, signal?: AbortSignal): Promise<Value> {
    const found = this.kept.get(key) ?? this.begin(key, make);
    // The latest used goes to the end: the first is the one to forget.
    this.kept.delete(key);
    this.kept.set(key, found);
    this.forget();
    found.waiting++;
    signal?.addEventListener("abort", () => this.leave(key, found), { once: true });
    return found.promise;
  }

  private begin(key: string, make: (signal: AbortSignal) => Promise<Value>): Kept<Value> {
    const abort = new AbortController();
    const begun: Kept<Value> = { promise: make(abort.signal), abort, waiting: 0, done: false };
    begun.promise.then(
      () => {
        begun.done = true;
      },
      () => this.kept.get(key) === begun && this.kept.delete(key),
    );
    return begun;
  }

  private leave(key: string, from: Kept<Value>): void {
    from.waiting--;
    if (from.waiting > 0 || from.done) return;
    from.abort.abort();
    if (this.kept.get(key) === from) this.kept.delete(key);
  }

  private forget(): void {
    for (const [key, each] of this.kept) {
      if (this.kept.size <= this.most) return;
      if (each.done) this.kept.delete(key);
    }
  }
}
