"""Every endpoint does what its OpenAPI document says, whatever it is asked."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from tests.diagnose.scenes import Scene

from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules

# A stream has no end to wait for; it has tests of its own.
STREAMS = "/api/live"
# The recording is written when the first question comes; the document needs none.
PLACE = TemporaryDirectory(prefix="exhume-asked-")
DIRECTORY = Path(PLACE.name) / "r"
schema = schemathesis.openapi.from_asgi("/api/openapi.json", create_app(DIRECTORY, Rules(hosts=()), DIRECTORY))


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
@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_what_the_document_says(case):
    case.call_and_validate()
