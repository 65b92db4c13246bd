"""A place for a lab's files."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.lab.leftovers import clean


@pytest.fixture
def work() -> Iterator[Path]:
    """A directory on a disk (pytest's own may be in memory, where there can't be a swapfile). No lab outlives it."""
    with tempfile.TemporaryDirectory(prefix="exhume-lab-test-", dir="/var/tmp") as directory:
        yield Path(directory)
        clean(Path(directory))
