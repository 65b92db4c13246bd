"""How fast the fleet page is, in a real browser over a synthetic lake of ten thousand nodes."""

import subprocess
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

from bench.flame_query import p95
from bench.page_speed import chromium, memory_mb
from bench.processes import EXHUME, BenchError
from bench.report import Row, Section
from bench.serving import ask, exhume_server

NODES = 10_000
COMMAND = ("fleet", "serve", "--lake")
HOUR_MS = 3_600_000
DRAWN = f"() => Number(document.querySelector('[data-testid=cells]')?.dataset.nodes) >= {NODES}"
# From the change of the address until the cells are drawn as it says.
CHANGE = """async ([hash, name, value]) => {
    const began = performance.now();
    location.hash = hash;
    for (;;) {
        await new Promise(requestAnimationFrame);
        const cells = document.querySelector('[data-testid=cells]');
        if (cells.dataset.drawnBy.split(' ').includes(`${name}=${value}`)) return performance.now() - began;
        if (performance.now() - began > 30000) throw new Error(`${hash} was not drawn`);
    }
}"""
GROUPINGS = ("image", "kernel", "instance_type", "pool", "os", "nic.driver", "zone", "nic.firmware")
MEASURES = ("memcgs_dying", "incidents", "nic_resets", "pressure_cpu", "longest_stall_s")


def measure(work: Path, quick: bool) -> Section:
    days = 1 if quick else 7
    lake = _lake(work, days)
    rounds = 3 if quick else 7
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        started, views = zip(
            *(
                _first_view(lake, browser.new_context(viewport={"width": 1440, "height": 900}).new_page())
                for _ in range(rounds)
            ),
            strict=True,
        )
        with exhume_server(lake, COMMAND) as served:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(served.address)
            page.wait_for_function(DRAWN)
            # All columns of the hour are read once the page is at rest.
            page.wait_for_function("() => document.querySelectorAll('.controls optgroup').length > 1")
            page.wait_for_timeout(1000)
            groupings = [_change(page, "group", key) for _ in range(rounds) for key in GROUPINGS]
            measures = [_change(page, "measure", name) for _ in range(rounds) for name in MEASURES]
            drawn_by = page.get_attribute("[data-testid=cells]", "data-drawn-by") or ""
            newest = int(drawn_by.split()[0].removeprefix("at="))
            hours = [_change(page, "at", str(newest - i * HOUR_MS)) for i in range(1, 20)]
            memory = memory_mb(served.pid)
        browser.close()
    return Section(
        "The fleet page",
        f"""
        Chromium, without a graphics card, on the same machine as the server, over a synthetic lake (`exhume lab fleet`)
        of {NODES:,} nodes and {days} {"day" if days == 1 else "days"}. First view: from opening the page, in a browser
        that has nothing of it, until all nodes of the newest hour are drawn; the server has just started and has read
        nothing. A change of grouping, of the measure and of the hour: from the change of the address until the cells
        are drawn by it. Bounds are held against the median of {rounds} for the first view, against the 95th percentile
        for changes.
        """,
        [
            Row(f"first view, {NODES:,} nodes", median(views), "s", 2.0, 1.0),
            Row("the same, with the server's start", median(started), "s"),
            Row("change of grouping, 95th percentile", p95(groupings), "ms", 300.0, 100.0, digits=0),
            Row("the same, median", median(groupings), "ms", digits=0),
            Row("change of measure, 95th percentile", p95(measures), "ms", digits=0),
            Row("change of the hour, one that was not read before, 95th percentile", p95(hours), "ms", digits=0),
            Row("memory of the server and its workers", memory, "MB", digits=0),
        ],
    )


def _lake(work: Path, days: int) -> Path:
    """The synthetic lake; it stays for the next run."""
    lake = work / f"synthetic-fleet-{days}"
    if not lake.exists():
        command = [str(EXHUME), "lab", "fleet", "--nodes", str(NODES), "--days", str(days), "--dir", str(lake)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"the synthetic lake could not be written: {done.stderr[-300:]}")
    return lake


def _first_view(lake: Path, page: Page) -> tuple[float, float]:
    """Seconds from the server's start, and from opening the page, until all nodes are drawn."""
    began = time.perf_counter()
    with exhume_server(lake, COMMAND) as served:
        ask(served.address, "/")
        opened = time.perf_counter()
        page.goto(served.address, wait_until="commit")
        page.wait_for_function(DRAWN)
        drawn = time.perf_counter()
        page.context.close()
    return drawn - began, drawn - opened


def _change(page: Page, name: str, value: str) -> float:
    """Milliseconds until a change is drawn."""
    taken: float = page.evaluate(CHANGE, [f"#{name}={value}", name, value])
    return taken
