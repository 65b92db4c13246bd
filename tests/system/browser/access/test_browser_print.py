"""The page on paper: the selection stays over its seconds, and the page fits the width."""

import pytest
from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_access")]

A4_PX = {"width": 718, "height": 1040}


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


def test_a_pdf_can_be_saved(at_incident: Page):
    assert at_incident.pdf(format="A4").startswith(b"%PDF")
