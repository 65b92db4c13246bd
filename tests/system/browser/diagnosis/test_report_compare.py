"""The page of a comparison, in a browser."""

import pytest
from tests.fleet.inventories import AGENT, BOOTSTRAP, node
from tests.fleet.test_compare import sides

from exhume.fleet.compare import compare
from exhume.model.inventory import Packages
from exhume.present.html.compare import compare_report

pytestmark = pytest.mark.xdist_group("browser_diagnosis")


@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_shows_the_sentence_and_every_difference(open_report, width):
    hostile = node(bootstrap=False, packages=Packages("dpkg", {"</script><b>x": "1"}))
    found = compare(*sides(node(), hostile))
    page = open_report(compare_report(found), width=width)
    assert page.get_by_test_id("verdict").inner_text().lower() == "different"
    assert page.locator("h1").inner_text() == found.sentence
    rows = page.locator("tbody tr")
    assert rows.count() == len(found.differences)
    assert AGENT in rows.nth(0).inner_text() and BOOTSTRAP in rows.nth(1).inner_text()
    assert "</script><b>x" in page.locator("tbody").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
