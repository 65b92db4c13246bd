"""A real browser over real servers. What the browser complains about fails the test."""

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from tests.parts import missing, need_browser
from tests.synthetic import synthetic_recording
from tests.system.browser.idle import PATIENCE_S, at_rest, watch

from exhume.model.clock import MILLIS
from exhume.present.web.app import STATIC

# The sandbox needs what containers of tests lack; the rest keeps the browser from calling home.
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
SIZE = {"width": 1440, "height": 1800}
expect.set_options(timeout=PATIENCE_S * 1000)


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.slow)


# One browser and one server for all tests of a worker: to start these takes longer than most of the tests.
@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not (STATIC / "index.html").exists():
        missing("the built page (make web)")
    with sync_playwright() as playwright:
        patience = 2 * PATIENCE_S * 1000
        opened = playwright.chromium.launch(executable_path=need_browser(), args=ARGUMENTS, timeout=patience)
        yield opened
        opened.close()


def visiting(browser: Browser, **context: object) -> BrowserContext:
    """A visit of its own, on a machine that may take its time."""
    made = browser.new_context(**context)  # type: ignore[arg-type]
    watch(made)
    return made


@contextmanager
def serving(directory: Path, *args: str) -> Iterator[str]:
    """The address of a server over a recording."""
    command = [sys.executable, "-m", "exhume.cli.main", "serve", "--dir", str(directory), "--listen", "127.0.0.1:0"]
    server = subprocess.Popen([*command, "--no-open", *args], stdout=subprocess.PIPE, text=True, env={**os.environ})
    assert server.stdout is not None
    try:
        assert select.select([server.stdout], [], [], 2 * PATIENCE_S)[0], "the server printed nothing"
        line = server.stdout.readline()
        assert line.startswith("exhume: http"), line
        yield line.removeprefix("exhume: ").strip()
    finally:
        server.terminate()
        server.wait(PATIENCE_S)
        server.stdout.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Six minutes of a node with sixteen cores: (directory, what was written)."""
    written = synthetic_recording(tmp_path_factory, cores=16, minutes=6, seed=11)
    return written.directory, written


@pytest.fixture(scope="session")
def address(written) -> Iterator[str]:
    with serving(written[0]) as found:
        yield found


@pytest.fixture(scope="session")
def incident(written):
    return written[1].incident


def _is_complaint(message: ConsoleMessage) -> bool:
    # Tests read drawings back, which pages don't: the advice about that is for them.
    return message.type in ("error", "warning") and "willReadFrequently" not in message.text


@pytest.fixture
def served() -> Iterator[Callable[[Path], str]]:
    """Starts servers; they end after the pages that look at them."""
    with ExitStack() as running:
        yield lambda directory: running.enter_context(serving(directory))


@pytest.fixture
def new_page(browser, served) -> Iterator[Callable[..., Page]]:
    """Opens pages; at the end there must be no console error, and no request to another address."""
    complaints: list[str] = []
    contexts = []

    def opened(url: str, **context: object) -> Page:
        made = visiting(browser, **{"viewport": SIZE, "accept_downloads": True, **context})
        made.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(made)
        page = made.new_page()
        home = urlsplit(url).netloc
        page.on("console", lambda message: complaints.append(message.text) if _is_complaint(message) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                complaints.append(f"requested {request.url}")
                if urlsplit(request.url).scheme in ("http", "https") and urlsplit(request.url).netloc != home
                else None
            ),
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        # A handler that still fetches when its page closes fails in the next call of Playwright: in another test.
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")
        context.close()
    assert complaints == []


@pytest.fixture
def open_report(new_page, tmp_path) -> Callable[..., Page]:
    """Writes a report to a file and opens it from there."""

    def opened(content: str, width: int = 1280) -> Page:
        target = tmp_path / "report.html"
        target.write_text(content)
        page: Page = new_page(target.as_uri(), viewport={"width": width, "height": 900}, timezone_id="Asia/Tokyo")
        return page

    return opened


@pytest.fixture
def page(new_page, address) -> Page:
    """The page as it is first seen, with its heatmap drawn."""
    opened = new_page(address)
    drawn(opened)
    return opened


@pytest.fixture
def at_incident(new_page, address, incident) -> Page:
    """The page with the incident selected on its core."""
    since, until = incident.since // MILLIS, incident.until // MILLIS
    link = f"{address}#since={since - 60_000}&until={until + 60_000}&s0={since}&s1={until}&cpus={incident.cpu}"
    page = new_page(link)
    drawn(page)
    expect(page.get_by_test_id("flame-canvas")).to_be_visible()
    return page


def shown(page: Page) -> None:
    """Wait until the heatmap shows something."""
    page.wait_for_function("() => document.querySelector('[data-testid=heatmap]')?.dataset.drawn === 'true'")


def drawn(page: Page) -> None:
    """Wait until the page has drawn all that it will, as long as it is not used."""
    shown(page)
    at_rest(page)
