"""How fast the page is, in a real browser over a long recording, and for twenty people at once."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median

from playwright.sync_api import Browser, Error, Page, Playwright, Route, sync_playwright

from bench.flame_query import p95
from bench.processes import BenchError
from bench.report import Row, Section
from bench.serving import ask, exhume_server, with_descendants
from bench.synthetic import CORES, WINDOW_S, Synthetic, synthetic
from exhume.model.clock import MILLIS

# The sandbox needs what containers lack; the rest keeps the browser from calling home.
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
PEOPLE = 20
QUESTIONS = 10
# People look at what they asked for; the harsh form is of people who never do.
LOOK_S, NO_LOOK_S = (1.0, 3.0), (0.0, 0.0)
HOUR_MS = 3_600_000
# More than any window of the recording has: its processes, repeated.
PROCESSES = 5000
SCROLL_PX, SCROLL_FRAMES = 120, 240
DRAWN = "() => document.querySelector('[data-testid=heatmap]')?.dataset.drawn === 'true'"
# The verdict and the incidents.
CARD = "() => document.querySelector('[data-testid=landing] .badge') !== null"
# From the selection until its frames are on the screen.
SELECT = """async hash => {
    const began = performance.now();
    const before = document.querySelector('[data-testid=flame-canvas]')?.exhumeDrawn ?? 0;
    location.hash = hash;
    for (;;) {
        await new Promise(requestAnimationFrame);
        const flame = document.querySelector('[data-testid=flame]');
        const canvas = document.querySelector('[data-testid=flame-canvas]');
        const settled = flame && flame.dataset.loading === 'false' && canvas;
        if (settled && (canvas.exhumeDrawn ?? 0) > before) return performance.now() - began;
        if (performance.now() - began > 30000) throw new Error('nothing was drawn');
    }
}"""
# From the change of the view until who ran in it is on the screen.
RAN = """async hash => {
    const began = performance.now();
    const rows = document.querySelector('[data-testid=heatmap]');
    const before = rows.dataset.slices;
    location.hash = hash;
    for (;;) {
        await new Promise(requestAnimationFrame);
        if (rows.dataset.slices && rows.dataset.slices !== before) return performance.now() - began;
        if (performance.now() - began > 30000) throw new Error('nothing was drawn');
    }
}"""
FRAMES = """async keys => {
    const times = [];
    let last = performance.now();
    for (const key of keys) {
        window.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        times.push(now - last);
        last = now;
    }
    return times;
}"""

# Scrolls so many pixels with each frame; the time of each frame.
SCROLL = """async ([pixels, frames]) => {
    const table = document.querySelector('[data-testid=long-table]');
    const times = [];
    let before = await new Promise(requestAnimationFrame);
    for (let i = 0; i < frames; i++) {
        table.scrollTop += pixels;
        const now = await new Promise(requestAnimationFrame);
        times.push(now - before);
        before = now;
    }
    return times;
}"""


def measure(work: Path, quick: bool) -> Section:
    data = synthetic(work, quick)
    rounds = 3 if quick else 7
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        starts, views, cards = zip(*(_first_view(data, page) for _ in range(rounds)), strict=True)
        answered = [_first_answer(data) for _ in range(rounds)]
        with exhume_server(data.directory) as served:
            page.goto(served.address)
            page.wait_for_function(DRAWN)
            page.wait_for_timeout(3000)
            five = [_selected(page, *each) for each in _selections(data, 10 if quick else 40)]
            ran = [_ran(page, window.since // MILLIS) for window in data.windows(10 if quick else 40, 7)]
            hour = [_selected(page, data.span.since // MILLIS + i * 60_000, HOUR_MS, None) for i in range(rounds)]
            frames = _panned(page)
            scrolled = _scrolled(page, data)
            people = _people(served.address, data, LOOK_S)
        with exhume_server(data.directory) as served:
            page.goto(served.address)
            page.wait_for_function(DRAWN)
            page.goto("about:blank")
            impatient = _people(served.address, data, NO_LOOK_S)
            memory = memory_mb(served.pid)
        browser.close()
    return Section(
        "The page",
        f"""
        Chromium, without a graphics card, on the same machine as the server, over a synthetic recording of
        {CORES} cores and {data.hours:g} hours. First view: from starting the server until the heatmap of
        everything is drawn, the browser being open. The landing card: until the state of the node and its incidents
        are above it. A selection: from the click until its flame graph is on the
        screen. Who ran: from the change of the view to other {WINDOW_S} seconds until every core's slices are on the
        screen. Panning and zooming: the time between two frames while keys pan and zoom the view of everything.
        Processes: the time between two frames while the table of {PROCESSES:,} processes (those of a minute, repeated)
        scrolls by {SCROLL_PX} pixels with each; 50 frames a second are 20 ms.
        {PEOPLE} people: each asks {QUESTIONS} questions at random ({len(KINDS)} kinds: heatmaps of the whole, of
        two hours and of ten minutes, flame graphs and differences of seconds and of a minute, offsets, processes,
        lanes, cells, marks, events; hardly any two are about the same time), of a server that one person opened before.
        In the first form each looks at an answer for one to three seconds; in the harsh form there is no pause: the
        next question follows the answer at once, from all {PEOPLE}. Any answer but 200 fails the run. Memory is what
        the server and its workers hold after the harsh form, shared pages counted once. Bounds are held against the
        median of {rounds} for starts, the first view, the landing card and the hour, against the 95th percentile for
        the rest.
        """,
        [
            Row("the server's start to its first answer, the page", median(starts), "s", 0.4, 0.25),
            Row("the server's start to its first answer about the recording", median(answered), "s", 0.6, 0.4),
            Row("first view, with the server's start", median(views), "s", 1.5),
            Row("landing card drawn, with the server's start", median(cards), "s", 1.2, 0.7),
            Row("pan and zoom, a frame, 95th percentile", p95(frames), "ms", 50.0, digits=1),
            Row("the same, median", median(frames), "ms", digits=1),
            Row(f"{WINDOW_S} s x 1 core selected to drawn, 95th percentile", p95(five), "ms", 300.0, digits=0),
            Row("the same, median", median(five), "ms", digits=0),
            Row(
                f"who ran in {WINDOW_S} s x {CORES} cores, drawn, 95th percentile",
                p95(ran),
                "ms",
                300.0,
                120.0,
                digits=0,
            ),
            Row("the same, median", median(ran), "ms", digits=0),
            Row(f"{PROCESSES:,} processes scroll, a frame on average", mean(scrolled), "ms", 20.0, digits=1),
            Row("the same, 95th percentile", p95(scrolled), "ms", digits=1),
            Row("a whole hour's flame graph, drawn", median(hour) / 1000, "s", 2.0),
            Row(f"{PEOPLE} people at once who look 1 to 3 s, an answer, 95th percentile", p95(people), "s", 1.0),
            Row("the same, median", median(people), "s"),
            Row(f"{PEOPLE} people at once without any pause, an answer, 95th percentile", p95(impatient), "s", 1.0),
            Row("the same, median", median(impatient), "s"),
            Row("memory of the server and its workers", memory, "MB", 220.0, 130.0, digits=0),
        ],
    )


def chromium(playwright: Playwright) -> Browser:
    """Raises BenchError where it can't be started."""
    try:
        return playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
    except Error as error:
        raise BenchError(f"chromium can't be started: {error.message.splitlines()[0]}") from None


def _first_view(data: Synthetic, page: Page) -> tuple[float, float, float]:
    """Seconds until the server answers, until its page shows the recording, and until the answer is above it."""
    page.goto("about:blank")
    began = time.perf_counter()
    with exhume_server(data.directory) as served:
        ask(served.address, "/")
        started = time.perf_counter() - began
        page.goto(served.address, wait_until="commit")
        page.wait_for_function(DRAWN)
        shown = time.perf_counter() - began
        page.wait_for_function(CARD)
        answered = time.perf_counter() - began
        page.goto("about:blank")
    return started, shown, answered


def memory_mb(server: int) -> float:
    """The proportional set size of a server and all its workers."""
    sizes = [
        int(line.split()[1])
        for pid in with_descendants(server)
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Pss:")
    ]
    return sum(sizes) / 1000


def _first_answer(data: Synthetic) -> float:
    """Seconds until the server answers a question about its recording, without a browser."""
    began = time.perf_counter()
    with exhume_server(data.directory) as served:
        ask(served.address, "/api/recording")
        return time.perf_counter() - began


def _selections(data: Synthetic, count: int) -> Iterator[tuple[int, int, int]]:
    draw = random.Random(5)
    for window in data.windows(count, 6):
        yield window.since // MILLIS, WINDOW_S * 1000, draw.randrange(CORES)


def _selected(page: Page, since: int, length: int, cpu: int | None) -> float:
    core = "" if cpu is None else f"&cpus={cpu}"
    around = f"since={since - 60_000}&until={since + length + 60_000}"
    taken: float = page.evaluate(SELECT, f"#{around}&s0={since}&s1={since + length}{core}")
    return taken


def _ran(page: Page, since: int) -> float:
    """Milliseconds until the slices of a view are drawn; what was still being read for the one before is done."""
    page.wait_for_timeout(500)
    taken: float = page.evaluate(RAN, f"#since={since}&until={since + WINDOW_S * 1000}")
    return taken


def _panned(page: Page) -> list[float]:
    """Milliseconds between frames. The first ones of a kind read what is new; they count, too."""
    page.evaluate("() => { location.hash = ''; }")
    page.wait_for_timeout(1500)
    keys = ["+"] * 12 + ["ArrowLeft", "ArrowRight"] * 30 + ["ArrowRight"] * 20 + ["-"] * 12
    times: list[float] = page.evaluate(FRAMES, keys)
    return times


def _scrolled(page: Page, data: Synthetic) -> list[float]:
    """Milliseconds between frames while the table of processes scrolls."""

    def repeated(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        rows = found["processes"]
        found["processes"] = [{**rows[i % len(rows)], "pid": i} for i in range(PROCESSES)]
        route.fulfill(json=found)

    pattern = "**/api/processes?*"
    page.route(pattern, repeated)
    since = data.span.since // MILLIS + HOUR_MS // 2
    page.evaluate("hash => { location.hash = hash; }", f"#s0={since}&s1={since + 60_000}&tab=processes&by=process")
    page.wait_for_function(f"() => document.querySelector('[aria-rowcount=\"{PROCESSES + 1}\"]') !== null")
    page.wait_for_timeout(1500)
    times: list[float] = page.evaluate(SCROLL, [SCROLL_PX, SCROLL_FRAMES])
    page.unroute(pattern)
    return times


def _people(address: str, data: Synthetic, look_s: tuple[float, float]) -> list[float]:
    """Seconds of every answer. Any that is not 200 is an error."""
    span = data.span.since // MILLIS, data.span.until // MILLIS

    def one(person: int) -> list[float]:
        draw = random.Random(person)
        taken = []
        for _ in range(QUESTIONS):
            time.sleep(draw.uniform(*look_s))
            taken.append(ask(address, _question(draw, span)).seconds)
        return taken

    with ThreadPoolExecutor(PEOPLE) as people:
        return [taken for answers in people.map(one, range(PEOPLE)) for taken in answers]


# What people ask, about a moment and cores at random.
KINDS = (
    "/api/cores?cells=1200&measure=unusual",
    "/api/cores?since={since}&until={hours}&cells=1200&measure={measure}",
    "/api/cores?since={since}&until={minutes}&cells=1200&measure=unusual",
    "/api/flame?since={since}&until={five}&cpus={core}",
    "/api/flame?since={since}&until={five}&cpus={core}&baseline=before",
    "/api/flame?since={since}&until={ten}&cpus={core}&baseline=others",
    "/api/flame?since={since}&until={minute}&cpus={core}-{near}",
    "/api/subsecond?since={since}&until={five}&cpus={core}",
    "/api/subsecond?since={since}&until={minute}",
    "/api/processes?since={since}&until={five}&cpus={core}",
    "/api/processes?since={since}&until={minute}",
    "/api/lanes?since={since}&until={hour}&cells=600&names=memcgs,pressure",
    "/api/cell?at={since}&cpu={core}&measure=unusual",
    "/api/marks?since={since}&until={hour}",
    "/api/events?since={since}&until={minutes}",
)


def _question(draw: random.Random, span: tuple[int, int]) -> str:
    since = draw.randrange(span[0], span[1] - HOUR_MS)
    core = draw.randrange(CORES)
    return draw.choice(KINDS).format(
        since=since,
        five=since + 5_000,
        ten=since + 10_000,
        minute=since + 60_000,
        minutes=since + 600_000,
        hour=since + HOUR_MS,
        hours=since + 2 * HOUR_MS,
        core=core,
        near=min(CORES - 1, core + 7),
        measure=draw.choice(["stall", "busy", "system", "softirq", "wait"]),
    )
