"""The HTML report of a verified fix in a real browser."""

import pytest
from tests.present.html.proofs import mixed_proof

from exhume.model.times import UTC
from exhume.present.html.reports import verify_report

pytestmark = pytest.mark.xdist_group("browser_diagnosis")


@pytest.mark.parametrize("width", [1100, 500])
def test_all_measures_are_drawn_and_nothing_overflows(open_report, width):
    page = open_report(verify_report(mixed_proof(), UTC), width=width)
    changes = [each.get_attribute("data-change") for each in page.get_by_test_id("measure").all()]
    assert changes == ["improved", "improved", "worse", "not-enough-evidence"]
    # The last has nothing after the fix.
    assert page.locator("svg path").count() == 7
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".badge").all_text_contents() == [
        "worse",
        "improved",
        "improved",
        "worse",
        "not proven",
    ]
