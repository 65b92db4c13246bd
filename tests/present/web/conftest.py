"""A recording with an incident in it, and the page's server over it."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from tests.synthetic import synthetic_recording

from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules
from exhume.store.read.recording import Recording

HOST = "http://localhost"


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Four minutes of a node with eight cores: (directory, what was written)."""
    written = synthetic_recording(tmp_path_factory, cores=8, minutes=4, seed=7)
    return written.directory, written


@pytest.fixture(scope="session")
def recording(written) -> Recording:
    return Recording.open(written[0])


@pytest.fixture(scope="session")
def client(written, tmp_path_factory) -> Iterator[TestClient]:
    static = tmp_path_factory.mktemp("static")
    (static / "index.html").write_text("<!doctype html><title>exhume</title>")
    (static / "assets").mkdir()
    (static / "assets" / "app-1234.js").write_text("export {}")
    with TestClient(create_app(written[0], Rules(), static), base_url=HOST) as opened:
        yield opened
