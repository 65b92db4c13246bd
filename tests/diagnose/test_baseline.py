"""A function is held against the calm before, the other cores and the hour before."""

from pathlib import Path

import pytest
from tests.diagnose.scenes import Scene, at

from exhume.diagnose import baseline
from exhume.diagnose.baseline import SIGNIFICANT, Comparison, compare
from exhume.diagnose.evidence.case import Case
from exhume.model.clock import NANOS, Window

PATH = ["do_syscall_64", "zorp_ioctl", "zorp_hash"]


def case_of(scene: Scene, directory: Path, since: int, until: int, before: int) -> Case:
    return Case(scene.write(directory), Window(at(since), at(until)), Window(at(before), at(since)))


def stands_out(found: Comparison) -> bool:
    """From everything that it can be held against."""
    known = [each for each in (found.before, found.others, found.hour_earlier) if each is not None]
    return all(found.significance_of(each) >= SIGNIFICANT for each in known)


def test_what_only_one_core_does_now_is_news(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=20).stack(3, 10, 20, 0.9, "zorpd", 9, PATH).stack(5, 0, 20, 0.01, "other", 8, PATH)
    found = compare(case_of(scene, tmp_path, 10, 20, 0), "zorp_hash", 3)
    assert found.now.share == pytest.approx(0.9, abs=0.02)
    assert found.before is not None and found.before.share == 0
    assert found.others is not None and 0 < found.others.share < 0.01
    assert found.hour_earlier is None
    assert stands_out(found)


@pytest.mark.parametrize(("cpu", "since"), [(3, 0), (2, 10)])
def test_what_was_there_before_or_is_everywhere_is_no_news(tmp_path: Path, cpu: int, since: int) -> None:
    scene = Scene(cores=4, seconds=20)
    for each in range(4) if since else [cpu]:
        scene.stack(each, since, 20, 0.9, "zorpd", 9, PATH)
    assert not stands_out(compare(case_of(scene, tmp_path, 10, 20, 0), "zorp_hash", cpu))


def test_an_hour_earlier_counts_where_it_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Writing a whole hour takes long; a short one is the same for a comparison.
    monkeypatch.setattr(baseline, "HOUR_NS", 60 * NANOS)
    scene = Scene(cores=1, seconds=90).stack(0, 10, 20, 0.5, "zorpd", 9, PATH).stack(0, 70, 80, 0.5, "z", 9, PATH)
    found = compare(case_of(scene, tmp_path, 70, 80, 60), "zorp_hash", 0)
    assert found.hour_earlier is not None and found.hour_earlier.share == pytest.approx(0.5, abs=0.02)
    assert not stands_out(found)
