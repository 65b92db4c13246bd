"""Takes the pictures of the page that the documents show: docs/images/page-*.png.

    python tools/page_pictures.py DIR    of a recording with an incident, such as `exhume lab synth` writes

Needs the built page (`make web`) and Chromium.
"""

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs/images"
WIDTH, HEIGHT = 1440, 1080
# The height of a panel alone, from its scope line on.
PANEL_HEIGHT = 620
AROUND_MS = 45_000
MINUTE_MS = 60_000
PATIENCE_S = 60


@contextmanager
def serving(recording: str) -> Iterator[str]:
    """The address of a server over a recording."""
    command = [
        sys.executable,
        "-m",
        "exhume.cli.main",
        "serve",
        "--dir",
        recording,
        "--listen",
        "127.0.0.1:0",
        "--no-open",
    ]
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
        # Tall enough that nothing has to be scrolled.
        page = shown(browser, f"{view}{selected}&tab={tab}", "light", 3 * HEIGHT)
        panel = page.locator("section.panels").bounding_box()
        assert panel is not None
        height = min(panel["height"], HEIGHT - 100 if tab == "diagnosis" else PANEL_HEIGHT)
        clip = {"x": 0.0, "y": panel["y"], "width": float(WIDTH), "height": height}
        page.screenshot(path=IMAGES / f"page-{tab}.png", clip=clip)  # type: ignore[arg-type]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with serving(sys.argv[1]) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        take(browser, address)
        browser.close()


if __name__ == "__main__":
    main()
