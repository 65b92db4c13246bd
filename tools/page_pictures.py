"""Takes the pictures of the pages and the terminal that the documents show: all of docs/images but page-0.1*.png.

    python tools/page_pictures.py DIR              of a recording with an incident, such as `exhume lab synth` writes
    python tools/page_pictures.py --slices DIR     of the same, of few cores: who ran when the incident began
    python tools/page_pictures.py --lake LAKE      of a fleet with sick nodes
    python tools/page_pictures.py --story DIR      of `exhume demo --keep DIR`, for docs/incident.md (incident-*.png)
    python tools/page_pictures.py --terminal DIR   of the same: diagnose.png, cores.png and flame.png

Needs the built page (`make web`) and Chromium.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

EXHUME = (sys.executable, "-m", "exhume.cli.main")
IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
WIDTH, HEIGHT = 1440, 1080
# The height of a panel alone, from its scope line on.
PANEL_HEIGHT = 620
AROUND_MS = 45_000
MINUTE_MS = 60_000
# A terminal of this size.
COLUMNS, LINES = 104, 34
FLAME_HEIGHT = 640
PATIENCE_S = 60


@contextmanager
def serving(*source: str) -> Iterator[str]:
    """The address of a server: over a recording, or a lake."""
    command = [*EXHUME, *source, "--listen", "127.0.0.1:0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().removeprefix("exhume: ").strip()
        finally:
            server.terminate()


def incident_of(address: str) -> dict[str, Any]:
    """The first incident, once its cause is known."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with urllib.request.urlopen(f"{address}api/incidents") as answer:
            found: list[dict[str, Any]] = json.load(answer)["incidents"]
        if found and found[0]["state"] == "known":
            return found[0]
        time.sleep(0.5)
    sys.exit("there is no incident in this recording, or none whose cause is found")


def shown(browser: Browser, link: str, scheme: str, height: int = HEIGHT) -> Page:
    """The page behind a link, with everything read."""
    size = {"width": WIDTH, "height": height}
    page = browser.new_page(viewport=size, color_scheme=scheme, timezone_id="UTC")  # type: ignore[arg-type]
    page.goto(link)
    page.wait_for_function("() => document.querySelector('[data-testid=heatmap]')?.dataset.drawn === 'true'")
    page.wait_for_function("() => document.querySelector('.finding') !== null", timeout=PATIENCE_S * 1000)
    page.wait_for_function("() => !document.querySelector('[aria-busy=true]')", timeout=PATIENCE_S * 1000)
    # The lane that deviates most opens by itself, a moment later.
    page.wait_for_function("() => document.querySelector('.uplot') !== null", timeout=PATIENCE_S * 1000)
    page.wait_for_timeout(500)
    return page


def take(browser: Browser, address: str) -> None:
    incident = incident_of(address)
    since, until = incident["since"], incident["until"]
    cpus = ",".join(map(str, incident["cpus"]))
    view = f"{address}#since={since - AROUND_MS}&until={until + AROUND_MS}&cpus={cpus}"
    for scheme in ("light", "dark"):
        page = shown(browser, f"{view}&s0={since}&s1={until}", scheme)
        page.screenshot(path=IMAGES / f"page-{scheme}.png")
    middle = (since + until) // 2
    minute = f"&s0={middle - MINUTE_MS // 2}&s1={middle + MINUTE_MS // 2}"
    for tab, selected in (
        ("difference", f"&s0={since}&s1={until}"),
        ("subsecond", minute),
        ("diagnosis", f"&s0={since}&s1={until}"),
    ):
        most = HEIGHT - 100 if tab == "diagnosis" else PANEL_HEIGHT
        take_part(browser, f"{view}{selected}&tab={tab}", f"page-{tab}.png", most)


def take_part(browser: Browser, link: str, name: str, most: int, *, panel: bool = True) -> None:
    """The panel behind a link, or the timeline above it, at most so high."""
    # Tall enough that nothing has to be scrolled.
    page = shown(browser, link, "light", 3 * HEIGHT)
    # The headless shell keeps parts of an earlier layout on the screen, unless the page has a surface of its own.
    page.evaluate("() => { document.body.style.opacity = '0.99' }")
    page.wait_for_timeout(300)
    box = page.locator("section.panels").bounding_box()
    assert box is not None
    top, height = (box["y"], min(box["height"], most)) if panel else (0.0, min(box["y"], most))
    clip = {"x": 0.0, "y": top, "width": float(WIDTH), "height": height}
    page.screenshot(path=IMAGES / name, clip=clip)  # type: ignore[arg-type]


def take_slices(browser: Browser, address: str) -> None:
    """Who ran in the three seconds around the start of an incident."""
    since = incident_of(address)["since"]
    take_part(browser, f"{address}#since={since - 1500}&until={since + 1500}", "page-slices.png", HEIGHT, panel=False)


def take_story(browser: Browser, address: str) -> None:
    """One incident from far away to its cause."""
    incident = incident_of(address)
    since, until = incident["since"], incident["until"]
    selected = f"&s0={since}&s1={until}&cpus={','.join(map(str, incident['cpus']))}"
    view = f"{address}#since={since - AROUND_MS}&until={until + AROUND_MS}{selected}"
    take_part(browser, f"{address}#lanes=memcgs", "incident-overview.png", HEIGHT, panel=False)
    take_part(browser, view, "incident-cores.png", HEIGHT, panel=False)
    take_part(browser, f"{view}&tab=difference", "incident-difference.png", PANEL_HEIGHT)
    take_part(browser, f"{view}&tab=diagnosis", "incident-diagnosis.png", HEIGHT - 100)


def take_fleet(browser: Browser, address: str) -> None:
    """The newest hour that has incidents, with the report."""
    with urllib.request.urlopen(f"{address}api/histogram") as answer:
        hours = json.load(answer)["hours"]
    size = {"width": WIDTH, "height": HEIGHT}
    page = browser.new_page(viewport=size, color_scheme="light", timezone_id="UTC")  # type: ignore[arg-type]
    page.goto(f"{address}#at={hours[-1]}")
    ready = "() => document.querySelector('[data-testid=report]')?.dataset.state === 'ready'"
    page.wait_for_function(ready, timeout=10 * PATIENCE_S * 1000)
    page.wait_for_function("() => !document.querySelector('[aria-busy=true]')", timeout=PATIENCE_S * 1000)
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / "fleet-light.png")


def take_terminal(browser: Browser, directory: str) -> None:
    """What the commands print about an incident, and the file that `flame` writes."""
    mark = json.loads(exhume("incidents", "--dir", directory, "--json"))["incidents"][0]
    marked = datetime.fromisoformat(mark["time"])
    began, since, until = (marked + timedelta(seconds=each) for each in (-40, -2, 4))
    found = exhume("diagnose", "--dir", directory, "--at", mark["time"], "--color", "always")
    take_screen(browser, found, "diagnose.png", before="\n2. ")
    around = ("--since", began.isoformat(), "--until", (until + timedelta(seconds=30)).isoformat())
    take_screen(browser, exhume("cores", "--dir", directory, *around, "--color", "always"), "cores.png")
    with tempfile.TemporaryDirectory() as work:
        file = f"{work}/why.html"
        calm = f"{began.isoformat()}..{(since - timedelta(seconds=3)).isoformat()}"
        window = ("--since", since.isoformat(), "--until", until.isoformat(), "--cpu", str(mark["cpu"]))
        exhume("flame", "--dir", directory, *window, "--baseline", calm, "-o", file)
        page = browser.new_page(viewport={"width": 1280, "height": FLAME_HEIGHT}, color_scheme="light")
        page.goto(f"file://{file}")
        page.wait_for_timeout(1000)
        page.screenshot(path=IMAGES / "flame.png")


def exhume(*words: str) -> str:
    """What a command prints on a terminal of COLUMNS."""
    size = {
        "COLUMNS": str(COLUMNS),
        "LINES": str(LINES),
        "COLORTERM": "truecolor",
        "TERM": "xterm-256color",
        "TZ": "UTC",
    }
    done = subprocess.run([*EXHUME, *words], env=os.environ | size, stdout=subprocess.PIPE, text=True, check=False)
    # Findings end it with 1.
    if done.returncode not in (0, 1):
        sys.exit(f"exhume {' '.join(words)} ended with {done.returncode}")
    return done.stdout


def take_screen(browser: Browser, printed: str, name: str, before: str = "") -> None:
    """What was printed, or what of it comes before a text."""
    text = Text.from_ansi(printed.rstrip())
    if before and before in text.plain:
        text = text[: text.plain.index(before)]
    terminal = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    terminal.print(text)
    screen = terminal.export_html(theme=MONOKAI, inline_styles=True)
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1.25)
    page.set_content(screen)
    page.add_style_tag(
        content="body { margin: 0 } pre { display: inline-block; margin: 0; padding: 16px; background: #0c0c0c }"
    )
    page.locator("pre").first.screenshot(path=IMAGES / name)


def main() -> None:
    kinds = {"--slices": take_slices, "--lake": take_fleet, "--story": take_story, "--terminal": take_terminal}
    what = sys.argv[1] if sys.argv[1:2] and sys.argv[1] in kinds else ""
    if len(sys.argv) != 2 + bool(what):
        sys.exit(__doc__)
    source = ("fleet", "serve", "--lake") if what == "--lake" else ("serve", "--dir")
    directory = sys.argv[-1]
    server = nullcontext(directory) if what == "--terminal" else serving(*source, directory)
    with server as address, sync_playwright() as playwright:
        program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        kinds.get(what, take)(browser, address)
        browser.close()


if __name__ == "__main__":
    main()
