"""Detects an idle page: every request is answered and drawn, and nothing that will soon happen is pending.

A page answers a key or a click in several steps: a timer, a question to the server, an effect after the next frame. A
test that looks, or takes the place of something to click on, in between sees what is about to change. How long the
steps take is the machine's affair, so that no time is right to wait for; the page's own steps are counted.
"""

from playwright.sync_api import BrowserContext, Page

# For how long something may take to be seen, on a machine that is busy with other tests.
PATIENCE_S = 90.0

# Longer timers do not belong to the current action: polling, retries, messages that disappear.
_WATCH = """(() => {
    const SOON_MS = 700;
    const pending = new Map();
    let number = 0;
    const begin = what => {
        const key = ++number;
        pending.set(key, what);
        return () => pending.delete(key);
    };
    const until = (promise, what) => {
        const over = begin(what);
        promise.then(over, over);
        return promise;
    };
    const { fetch, setTimeout, clearTimeout, requestAnimationFrame, cancelAnimationFrame, EventSource } = window;
    window.fetch = (...args) => until(fetch(...args), `the answer to ${args[0]}`);
    for (const read of ['json', 'text', 'arrayBuffer']) {
        const original = Response.prototype[read];
        Response.prototype[read] = function () {
            return until(original.call(this), `the rest of ${this.url}`);
        };
    }
    // By the number of the timer or frame: what ends the wait for it.
    const timers = new Map(), frames = new Map();
    window.setTimeout = (work, ms = 0, ...args) => {
        if (typeof work !== 'function' || ms > SOON_MS) return setTimeout(work, ms, ...args);
        const over = begin(`a timer of ${ms} ms`);
        const timer = setTimeout(() => {
            timers.delete(timer);
            over();
            work(...args);
        }, ms);
        timers.set(timer, over);
        return timer;
    };
    window.clearTimeout = timer => {
        timers.get(timer)?.();
        timers.delete(timer);
        clearTimeout(timer);
    };
    window.requestAnimationFrame = work => {
        const over = begin('a frame');
        const frame = requestAnimationFrame(time => {
            frames.delete(frame);
            over();
            work(time);
        });
        frames.set(frame, over);
        return frame;
    };
    window.cancelAnimationFrame = frame => {
        frames.get(frame)?.();
        frames.delete(frame);
        cancelAnimationFrame(frame);
    };
    window.EventSource = class extends EventSource {
        constructor(...args) {
            super(...args);
            const over = begin('the first news of the recording');
            this.addEventListener('message', over, { once: true });
            this.addEventListener('error', over, { once: true });
        }
    };
    const next = () => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
    // What is still pending; nothing when idle. Sizes are reported after a frame, and may request another.
    window.exhumeAtRest = async patience => {
        const deadline = performance.now() + patience;
        for (let calm = 0; calm < 3; ) {
            await next();
            const busy = pending.size > 0 || document.querySelector('[aria-busy=true]') !== null;
            calm = busy ? 0 : calm + 1;
            if (busy && performance.now() > deadline) return [...pending.values(), 'what is aria-busy'];
        }
        return [];
    };
})()"""


def watch(context: BrowserContext) -> None:
    """Count the steps of every page of this context, and be patient with all of it."""
    context.add_init_script(_WATCH)
    context.set_default_timeout(PATIENCE_S * 1000)


def at_rest(page: Page) -> None:
    """Wait until nothing is on its way any more. A recording that grows has something on its way each second."""
    awaited = page.evaluate("patience => exhumeAtRest(patience)", PATIENCE_S * 1000)
    assert awaited == [], f"not at rest within {PATIENCE_S:.0f} s: {awaited}"
