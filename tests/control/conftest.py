"""Workers that can be stopped."""

from collections.abc import Iterator

import pytest

from exhume.control.worker import Workers
from exhume.model.stop import Stop


@pytest.fixture
def stop() -> Iterator[Stop]:
    stop = Stop()
    yield stop
    stop.close()


@pytest.fixture
def workers(stop: Stop) -> Workers:
    return Workers(stop)
