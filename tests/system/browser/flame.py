"""Finds frames in the flame graph: places of its rows, names under the pointer, the menu."""

from playwright.sync_api import Page, expect
from tests.system.browser.canvas import Spot, box

ROW = 18


def frame_spot(page: Page, row: int, share: float = 0.3, canvas: str = "flame-canvas") -> Spot:
    """A place in a row of the flame graph (icicles: the first row is the whole)."""
    drawing = box(page, canvas)
    return Spot(drawing["x"] + share * drawing["width"], drawing["y"] + row * ROW + ROW / 2)


def name_under(page: Page, at: Spot) -> str:
    page.mouse.move(at.x, at.y)
    return page.get_by_test_id("flame-tip").locator("strong").inner_text()


def row_of(page: Page, name: str) -> int:
    top = frame_spot(page, 0)
    for row in range(2, 40):
        if name_under(page, Spot(top.x, top.y + row * ROW)) == name:
            return row
    raise AssertionError(f"{name} is not drawn")


def open_menu(page: Page, row: int) -> None:
    at = frame_spot(page, row)
    page.mouse.click(at.x, at.y, button="right")
    expect(page.get_by_role("menu")).to_be_visible()
