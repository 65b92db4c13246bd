"""A recording to export, and what the store says of it."""

import pytest
from tests.synthetic import synthetic_recording

from exhume.model.clock import NANOS, Window
from exhume.store.read.profile import SampleTable
from exhume.store.read.recording import Recording


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory):
    """Four minutes of a node with eight cores, the same that the tests of the commands read."""
    return synthetic_recording(tmp_path_factory, cores=8, minutes=4, seed=7)


@pytest.fixture(scope="session")
def recording(synthetic) -> Recording:
    return Recording.open(synthetic.directory)


@pytest.fixture(scope="session")
def window(synthetic) -> Window:
    """Ten seconds around the incident."""
    return Window(
        synthetic.incident.since // NANOS * NANOS - 2 * NANOS, synthetic.incident.since // NANOS * NANOS + 8 * NANOS
    )


@pytest.fixture(scope="session")
def samples(recording, window) -> SampleTable:
    found = recording.sample_table(window)
    assert len(found) == recording.profile(window).samples > 1000
    return found
