"""Requests that are generated for every endpoint of the fleet page, run by test_fleet_openapi.py."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import schemathesis
from tests.present.fleet.small_lake import write_lake
from tests.present.web.wire import GENERATED

from exhume.present.fleet.app import create_app
from exhume.present.web.guard import Rules

# The lake is written when the first question comes; the document needs none.
PLACE = TemporaryDirectory(prefix="exhume-asked-")
DIRECTORY = Path(PLACE.name) / "lake"
DIRECTORY.mkdir()
schema = schemathesis.openapi.from_asgi("/api/openapi.json", create_app(DIRECTORY, Rules(hosts=()), DIRECTORY))


@pytest.fixture(scope="module", autouse=True)
def written(bundle) -> Iterator[None]:
    write_lake(DIRECTORY, bundle)
    yield
    PLACE.cleanup()


# The report is computed by a process of its own, which has tests of its own.
@schema.exclude(path="/api/report").parametrize()
@GENERATED
def test_what_the_document_says(case):
    case.call_and_validate()
