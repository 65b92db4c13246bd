"""Synthetic recordings that all workers of a test run read: the first one to need a recording writes it."""

import fcntl
import os
import pickle

import pytest

from exhume.lab.synth import SyntheticSummary, write_synthetic


def synthetic_recording(factory: pytest.TempPathFactory, *, cores: int, minutes: float, seed: int) -> SyntheticSummary:
    """What was written; its `directory` is for all tests of the run, so none may change it."""
    base = factory.getbasetemp()
    # Each worker has a directory of its own in that of the run.
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place = run / f"synthetic-{cores}-cores-{minutes}-minutes-seed-{seed}"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = place / "summary"
        if not known.exists():
            written = write_synthetic(place / "recording", cores=cores, hours=minutes / 60, seed=seed)
            known.write_bytes(pickle.dumps(written))
        summary: SyntheticSummary = pickle.loads(known.read_bytes())
    return summary
