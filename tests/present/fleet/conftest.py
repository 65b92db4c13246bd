"""A small lake with a real bundle in it, and the fleet page's server over it."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from tests.diagnose.scenes import Scene
from tests.present.fleet.small_lake import Lake, write_lake

from exhume.present.fleet.app import create_app
from exhume.present.web.guard import Rules
from exhume.store.read.recording import Recording
from exhume.store.write.bundle import write_bundle

HOST = "http://localhost"


@pytest.fixture(scope="session")
def bundle(tmp_path_factory) -> bytes:
    """Some seconds of a node with a busy core."""
    place = tmp_path_factory.mktemp("bundle")
    scene = Scene(cores=2, seconds=20)
    scene.core(1, 5, 12, system=980, user=20)
    scene.write(place / "r")
    recording = Recording.open(place / "r")
    span = recording.span()
    assert span is not None
    write_bundle(place / "b.exhume.zip", recording, span, {"README.txt": b"text"})
    return (place / "b.exhume.zip").read_bytes()


@pytest.fixture(scope="session")
def lake(tmp_path_factory, bundle) -> Lake:
    return write_lake(tmp_path_factory.mktemp("fleet") / "lake", bundle)


@pytest.fixture(scope="session")
def static(tmp_path_factory):
    static = tmp_path_factory.mktemp("static")
    (static / "index.html").write_text("<!doctype html><title>a recording</title>")
    (static / "fleet.html").write_text("<!doctype html><title>a fleet</title>")
    return static


@pytest.fixture(scope="session")
def client(lake, static) -> Iterator[TestClient]:
    with TestClient(create_app(lake.directory, Rules(), static), base_url=HOST) as opened:
        yield opened
