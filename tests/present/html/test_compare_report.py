"""The data of a comparison's page."""

from pydantic import TypeAdapter
from tests.fleet.inventories import AGENT, node
from tests.fleet.test_compare import sides

from exhume.fleet.compare import compare
from exhume.model.inventory import Packages
from exhume.present.compare_view import MOST_SHOWN, rest_text, shown_differences
from exhume.present.html.compare import MOST_ROWS, compare_data
from exhume.present.html.schemas import CompareReport


def test_the_page_has_the_shape_that_it_is_drawn_by():
    found = compare(*sides(node(), node(bootstrap=False, sysctls={"vm.swappiness": "\x1b[31m"})))
    data = compare_data(found)
    TypeAdapter(CompareReport).validate_python({"kind": "compare", **data})
    assert (
        data["verdict"] == "different" and data["rows"][0]["name"] == AGENT and data["rows"][0]["level"] == "critical"
    )
    assert "\x1b" not in str(data)


def test_many_packages_are_counted_and_not_listed():
    many = node(packages=Packages("dpkg", {f"p{number}": "1" for number in range(3000)}))
    found = compare(*sides(node(), many))
    data = compare_data(found)
    assert len(data["rows"]) == MOST_ROWS and data["left_out"] == len(found.differences) - MOST_ROWS
    shown = shown_differences(found)
    assert len(shown) <= MOST_SHOWN and "x package" in rest_text(found, len(shown))
    assert len(shown_differences(found, everything=True)) == len(found.differences)


def test_two_that_are_alike():
    data = compare_data(compare(*sides(node(), node("ip-10-9-9-9"))))
    assert data["verdict"] == "identical" and data["rows"] == []
