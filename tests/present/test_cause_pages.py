"""The pages of the causes, as they are built into the package."""

from pathlib import Path

import pytest
from tests.parts import missing

from exhume.diagnose.catalogue import catalogue
from exhume.present.cause_pages import cause_page
from exhume.present.web.app import STATIC

DOCS = Path(__file__).resolve().parents[2] / "docs" / "causes"


@pytest.fixture(autouse=True)
def built() -> None:
    if not (STATIC / "causes").is_dir():
        missing("the built page (make web)")


def test_every_cause_has_its_page():
    for cause in catalogue():
        assert cause_page(cause) == (DOCS / f"{cause}.md").read_text(), cause


@pytest.mark.parametrize("name", ["no-such-cause", "", "../index", "../../app", "causes/zombie-memcgs"])
def test_other_names_have_none(name):
    assert cause_page(name) is None
