"""Scenarios of page faults, writeback and compaction do what they say for a second, and leave nothing behind."""

import resource
from pathlib import Path

import pytest

from exhume.collect.host import Host
from exhume.lab.mounts import is_mounted
from exhume.lab.programs.scribble import Budget
from exhume.lab.scenarios import SCENARIOS, writeback_storm
from exhume.lab.stage import stage
from exhume.model.errors import LabError

pytestmark = pytest.mark.alone


def vmstat(name: str) -> int:
    lines = (Host().proc / "vmstat").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.split()[0] == name))


def test_page_faults_are_made_by_the_ten_thousand(work: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with stage("page-fault-storm", seconds=1.0, work=work) as playing:
        SCENARIOS["page-fault-storm"].play(playing)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_minflt - before.ru_minflt > 30_000
    assert after.ru_stime - before.ru_stime > after.ru_utime - before.ru_utime
    assert not list(work.iterdir())


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
def test_writes_go_to_a_file_system_of_its_own(work: Path) -> None:
    scenario = SCENARIOS["writeback-storm"]
    assert scenario.prepare is not None
    with stage("writeback-storm", seconds=1.0, work=work) as playing:
        scenario.prepare(playing)
        place = playing.directory / "disk"
        assert is_mounted(place)
        scenario.play(playing)
        playing.stop()
        written = [path for path in place.iterdir() if path.is_file()]
        assert len(written) >= 10
        assert sum(path.stat().st_size for path in written) > 1 << 20
    assert not is_mounted(place)
    assert not list(work.iterdir())


@pytest.mark.root
def test_without_a_loop_device_it_plays_on_the_disk_that_there_is(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*words: object) -> None:
        raise LabError("no loop device can be had")

    monkeypatch.setattr(writeback_storm, "mount_ext4", missing)
    monkeypatch.setattr(writeback_storm, "make_ext4", missing)
    with stage("writeback-storm", seconds=0.5, work=work) as playing:
        writeback_storm.prepare(playing)
        writeback_storm.play(playing)
        assert any((playing.directory / "disk").iterdir())
    assert not list(work.iterdir())


def test_what_is_written_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("exhume.lab.programs.scribble.time.sleep", slept.append)
    budget = Budget(1100, 10.0)
    budget.spend(100)
    assert slept == []
    budget.spend(500)
    assert slept and slept[0] == pytest.approx(5.0, abs=0.1)


@pytest.mark.root
def test_the_kernel_compacts(work: Path) -> None:
    before = vmstat("compact_migrate_scanned")
    with stage("compaction-thp", seconds=1.5, work=work) as playing:
        SCENARIOS["compaction-thp"].play(playing)
    assert vmstat("compact_migrate_scanned") - before > 10_000
