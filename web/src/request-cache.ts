/** Deduplicates concurrent requests and keeps the latest answers. */

interface Entry<Value> {
  promise: Promise<Value>;
  abort: AbortController;
  readers: number;
  done: boolean;
}

/** Reads by key; a request is aborted when its last reader aborts. */
export class RequestCache<Value> {
  private readonly entries = new Map<string, Entry<Value>>();

  constructor(private readonly most: number) {}

  read(key: string, make: (signal: AbortSignal) => Promise<Value>, signal?: AbortSignal): Promise<Value> {
    const found = this.entries.get(key) ?? this.start(key, make);
    // The most recently used is last: the first is evicted.
    this.entries.delete(key);
    this.entries.set(key, found);
    this.evict();
    found.readers++;
    signal?.addEventListener("abort", () => this.leave(key, found), { once: true });
    return found.promise;
  }

  private start(key: string, make: (signal: AbortSignal) => Promise<Value>): Entry<Value> {
    const abort = new AbortController();
    const entry: Entry<Value> = { promise: make(abort.signal), abort, readers: 0, done: false };
    entry.promise.then(
      () => {
        entry.done = true;
      },
      () => this.entries.get(key) === entry && this.entries.delete(key),
    );
    return entry;
  }

  private leave(key: string, from: Entry<Value>): void {
    from.readers--;
    if (from.readers > 0 || from.done) return;
    from.abort.abort();
    if (this.entries.get(key) === from) this.entries.delete(key);
  }

  private evict(): void {
    for (const [key, each] of this.entries) {
      if (this.entries.size <= this.most) return;
      if (each.done) this.entries.delete(key);
    }
  }
}
