"""Reads and uses the page: positions on the heatmap, colours of cells, the state in the address bar, the filter."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page
from tests.system.browser.idle import PATIENCE_S, at_rest

CORES = 16


@dataclass(frozen=True)
class Spot:
    x: float
    y: float

    @property
    def pair(self) -> tuple[float, float]:
        return self.x, self.y


def state(page: Page) -> dict[str, str]:
    """The state in the address bar, read from the page: Playwright notices changes a little later."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address_of(page)).fragment).items()}


def address_of(page: Page) -> str:
    return str(page.evaluate("location.href"))


def wait_for_state(page: Page, *texts: str) -> dict[str, str]:
    """The state in the address bar, once it contains all of these texts (or, after a `!`, does not)."""
    page.wait_for_function(
        """texts => texts.every(text => text.startsWith('!')
            ? !location.hash.includes(text.slice(1)) : location.hash.includes(text))""",
        arg=list(texts),
        timeout=PATIENCE_S * 1000,
    )
    return state(page)


def filter_by(page: Page, text: str) -> None:
    # What the filter before left to do would take the line for its own.
    at_rest(page)
    field = page.get_by_role("combobox", name="filter")
    field.fill(text)
    field.press("Enter")


def until(page: Page, happened: Callable[[], object]) -> None:
    """Wait until that is seen."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"not seen within {PATIENCE_S:.0f} s"
        page.wait_for_timeout(50)


def box(page: Page, testid: str) -> dict[str, float]:
    """Where something is drawn, once nothing moves it any more."""
    at_rest(page)
    found = page.get_by_test_id(testid).bounding_box()
    assert found is not None
    return found


def spot(page: Page, span: tuple[int, int], at_ms: float, cpu: int, cores: int = CORES) -> Spot:
    """Where a core's moment is drawn while the view is `span` (milliseconds)."""
    heat = box(page, "heatmap")
    share = (at_ms - span[0]) / (span[1] - span[0])
    return Spot(heat["x"] + share * heat["width"], heat["y"] + (cpu + 0.5) * heat["height"] / cores)


def colour(page: Page, testid: str, at: Spot) -> tuple[int, int, int]:
    """The colour that a drawing has at a place of the page."""
    found: Any = page.evaluate(
        """([testid, x, y]) => {
            const drawing = document.querySelector(`[data-testid=${testid}]`);
            const place = drawing.getBoundingClientRect();
            const ratio = drawing.width / place.width;
            const pen = drawing.getContext('2d');
            return [...pen.getImageData((x - place.left) * ratio, (y - place.top) * ratio, 1, 1).data];
        }""",
        [testid, at.x, at.y],
    )
    return found[0], found[1], found[2]


def orange(rgb: tuple[int, int, int]) -> bool:
    """The colour of kernel code, strong or faint."""
    red, green, blue = rgb
    return red > green + 40 and red > blue + 60


def blue(rgb: tuple[int, int, int]) -> bool:
    """The colour of programs."""
    red, green, blue_part = rgb
    return blue_part > red + 25 and blue_part >= green


def drag(page: Page, start: Spot, end: Spot) -> None:
    page.mouse.move(start.x, start.y)
    page.mouse.down()
    page.mouse.move((start.x + end.x) / 2, (start.y + end.y) / 2, steps=3)
    page.mouse.move(end.x, end.y, steps=3)
    page.mouse.up()
