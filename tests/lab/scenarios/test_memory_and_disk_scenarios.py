"""Scenarios of page faults, writeback and compaction do what they say, and leave nothing behind."""

from pathlib import Path

import pytest
from tests.lab.lab_program import PATIENCE_S, play_until, spent

from exhume.lab.mounts import mount_points
from exhume.lab.programs.files import Budget
from exhume.lab.scenarios import SCENARIOS, files
from exhume.lab.stage import stage
from exhume.model.errors import LabError
from exhume.procfs.host import Host

pytestmark = pytest.mark.alone


def vmstat(name: str) -> int:
    lines = (Host().proc / "vmstat").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.split()[0] == name))


def test_page_faults_are_made_by_the_ten_thousand(work: Path) -> None:
    def stormed() -> bool:
        faults, user, system = spent(playing.running[0].pid)
        return faults > 30_000 and system > user

    with stage("page-fault-storm", seconds=PATIENCE_S, work=work) as playing:
        assert play_until(playing, SCENARIOS["page-fault-storm"].play, stormed)
    assert not list(work.iterdir())


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
def test_writes_go_to_a_file_system_of_its_own(work: Path) -> None:
    scenario = SCENARIOS["writeback-storm"]
    assert scenario.prepare is not None
    with stage("writeback-storm", seconds=PATIENCE_S, work=work) as playing:
        scenario.prepare(playing)
        place = playing.directory / "disk"
        assert str(place) in mount_points()

        def written() -> bool:
            sizes = [path.stat().st_size for path in place.iterdir() if path.is_file()]
            return len(sizes) >= 10 and sum(sizes) > 1 << 20

        assert play_until(playing, scenario.play, written)
    assert str(place) not in mount_points()
    assert not list(work.iterdir())


@pytest.mark.root
def test_without_a_loop_device_it_plays_on_the_disk_that_there_is(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object) -> None:
        raise LabError("no loop device can be had")

    monkeypatch.setattr(files, "mount_ext4", missing)
    monkeypatch.setattr(files, "make_ext4", missing)
    with stage("writeback-storm", seconds=PATIENCE_S, work=work) as playing:
        files.prepare_writeback_storm(playing)
        assert play_until(playing, files.writeback_storm.play, lambda: any((playing.directory / "disk").iterdir()))
    assert not list(work.iterdir())


def test_what_is_written_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("exhume.lab.programs.files.time.sleep", slept.append)
    monkeypatch.setattr("exhume.lab.programs.files.time.monotonic", lambda: 7.0)
    budget = Budget(1100, 10.0)
    budget.spend(100)
    assert slept == []
    budget.spend(500)
    assert slept == [pytest.approx(5.0)]


@pytest.mark.root
def test_the_kernel_compacts(work: Path) -> None:
    before = vmstat("compact_migrate_scanned")
    with stage("compaction-thp", seconds=PATIENCE_S, work=work) as playing:
        play = SCENARIOS["compaction-thp"].play
        assert play_until(playing, play, lambda: vmstat("compact_migrate_scanned") - before > 10_000)
