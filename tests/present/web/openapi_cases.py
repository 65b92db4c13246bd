"""Requests that are generated for every endpoint of the page, run by test_openapi.py."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import schemathesis
from tests.diagnose.scenes import Scene
from tests.present.web.wire import GENERATED

from exhume.model.errors import UsageError
from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules
from exhume.present.web.handlers.timeline import SAMPLED_MEASURES
from exhume.present.web.source import RecordingSource
from exhume.store.read.profile import check_stack_regex

# A stream has no end to wait for; it has tests of its own.
STREAMS = "/api/live"
# The recording is written when the first question comes; the document needs none.
PLACE = TemporaryDirectory(prefix="exhume-asked-")
DIRECTORY = Path(PLACE.name) / "r"
# Compared with itself: the same answers for both.
SOURCE = RecordingSource(DIRECTORY, DIRECTORY)
schema = schemathesis.openapi.from_asgi("/api/openapi.json", create_app(SOURCE, Rules(hosts=()), DIRECTORY))


@pytest.fixture(scope="module", autouse=True)
def recorded() -> Iterator[None]:
    scene = Scene(cores=2, seconds=20)
    scene.core(1, 5, 12, system=980, user=20)
    scene.stack(1, 5, 12, 0.98, "app", 7, ["entry_SYSCALL_64", "vfs_read"])
    scene.stack(0, 0, 20, 0.2, "web", 8, ["libc:main"])
    scene.event(6, "oom", "Out of memory: Killed process 7 (app)")
    scene.write(DIRECTORY)
    yield
    PLACE.cleanup()


@schema.exclude(path=STREAMS).parametrize()
@GENERATED
def test_what_the_document_says(case):
    # Other methods are refused before their parameters are looked at.
    refused = has_reversed_range(case) or is_refused_by_summary(case) or has_bad_expression(case)
    if case.method == "GET" and refused:
        assert case.call().status_code == 422
    else:
        case.call_and_validate()


def has_reversed_range(case) -> bool:
    """Cores such as 7-3 are refused, which the pattern of a schema can't express."""
    parts = [part.split("-") for part in str((case.query or {}).get("cpus") or "").split(",")]
    return any(
        len(part) == 2 and all(each.isdigit() for each in part) and int(part[0]) > int(part[1]) for part in parts
    )


def has_bad_expression(case) -> bool:
    """What RE2 can't compile is refused, which no format of a schema expresses."""
    try:
        check_stack_regex(str((case.query or {}).get("stack") or ""))
    except UsageError:
        return True
    return False


def is_refused_by_summary(case) -> bool:
    """A filter selects samples, which have few measures: the summary says so, a schema can't."""
    query = case.query or {}
    filtered = any(query.get(name) not in (None, "") for name in ("comm", "pid", "container", "pod", "stack", "kind"))
    return case.path == "/api/cores" and filtered and query.get("measure", "busy") not in SAMPLED_MEASURES
