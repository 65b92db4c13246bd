"""A lake that is not a directory: read with Arrow's file systems instead of DuckDB's own reader."""

from pathlib import Path

import pyarrow.fs as pafs
import pytest
from tests.fleet.lakes import minutes, plan, planted, window, write_rows

from exhume.fleet.engines.local import LocalEngine
from exhume.fleet.lake import Lake, LakeError
from exhume.fleet.report import report


def bucket(directory: Path) -> Lake:
    """A lake in a file system that is none of the kernel's."""
    return Lake("s3://bucket/lake", pafs.SubTreeFileSystem(str(directory), pafs.LocalFileSystem()), "lake")


@pytest.mark.slow
def test_an_object_store_gives_the_same_report(tmp_path: Path):
    lake = planted(tmp_path / "lake", plan(200, 0.5, seed=4)).directory
    engine = LocalEngine()
    near = report(str(lake), window(0.5), engine)
    far = report(bucket(tmp_path), window(0.5), engine)
    engine.close()
    assert near.separators and far.separators == near.separators
    assert (far.hazard, far.forecast, far.jobs, far.changes) == (near.hazard, near.forecast, near.jobs, near.changes)
    assert far.blind_spots == near.blind_spots


def test_a_store_that_stops_answering_is_an_error_and_a_damaged_object_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    damaged = write_rows(tmp_path / "lake", "summaries", minutes("a", 60, 120), "bad")
    write_rows(tmp_path / "lake", "summaries", minutes("b", 60, 120), "good")
    damaged.write_bytes(b"PAR1 no")
    lake, engine = bucket(tmp_path), LocalEngine(1)
    found = report(lake, window(1), engine)
    assert found.nodes == 1 and any("1 file " in each for each in found.blind_spots)

    def away() -> None:
        raise LakeError("the store does not answer")

    monkeypatch.setattr(lake, "check", away)
    with pytest.raises(LakeError):
        report(lake, window(1), engine)
    engine.close()
