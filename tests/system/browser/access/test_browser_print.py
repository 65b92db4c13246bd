"""The page on paper: the selection stays over its seconds, and the page fits the width."""

import pytest
from playwright.sync_api import Page
from tests.system.browser.pdf import drawn_in, image_name

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_access")]

A4_PX = {"width": 718, "height": 1040}
# The frame of a selection reaches a little beyond its row.
FRAME_PT = 3


def place(page: Page) -> tuple[float, float]:
    """Where the selection begins and ends, as shares of the width of the heatmap."""
    left, right = page.evaluate(
        """() => {
            const heat = document.querySelector('[data-testid=heatmap]').getBoundingClientRect();
            const box = document.querySelector('[data-testid=selected]').getBoundingClientRect();
            return [(box.left - heat.left) / heat.width, (box.right - heat.left) / heat.width];
        }"""
    )
    return left, right


def test_the_selection_is_printed_over_its_seconds(at_incident: Page):
    on_screen = place(at_incident)
    at_incident.emulate_media(media="print")
    at_incident.set_viewport_size(A4_PX)
    at_incident.wait_for_timeout(500)
    assert place(at_incident) == pytest.approx(on_screen, abs=0.005)
    assert at_incident.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_the_selection_of_a_pdf_is_over_its_seconds(at_incident: Page):
    """In the file itself: 0.1.0 squeezed the canvases and laid out again what is over them."""
    left, right = place(at_incident)
    size, colour = at_incident.evaluate(
        """() => {
            const { width, height } = document.querySelector('[data-testid=heatmap]');
            const { borderColor } = getComputedStyle(document.querySelector('[data-testid=selected]'));
            return [[width, height], borderColor.match(/\\d+/g).map(Number)];
        }"""
    )
    pdf = at_incident.pdf(format="A4")
    drawn = list(drawn_in(pdf))
    (heat,) = [each for each in drawn if each.what == image_name(pdf, *size)]
    over = [
        each
        for each in drawn
        if each.what == tuple(colour)
        and heat.left < each.left < each.right < heat.right
        and each.top <= heat.top + FRAME_PT
        and each.bottom >= heat.bottom - FRAME_PT
    ]
    assert over
    width = heat.right - heat.left
    # The frame is around the seconds.
    assert (min(each.left for each in over) - heat.left) / width == pytest.approx(left, abs=0.006)
    assert (max(each.right for each in over) - heat.left) / width == pytest.approx(right, abs=0.006)
