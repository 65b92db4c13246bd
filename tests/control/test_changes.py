"""Temporary changes: in the journal before they are made, undone after a kill or a reboot, refused elsewhere."""

import json
import os
from pathlib import Path

import pytest
from tests.control.made_node import cgroup, node

from exhume.control.changes import (
    CgroupSettings,
    NodeTools,
    Swapfile,
    SwapOff,
    hold_journal,
    keep_out_of_swap,
    read_journal,
    undo,
)
from exhume.control.journal import FILE, JournalDamaged, JournalError
from exhume.control.worker import JobFailed

NO_SWAPS = "Filename Type Size Used Priority\n"


def test_the_journal_keeps_what_is_not_undone(tmp_path, workers):
    host, place = node(tmp_path, swaps=NO_SWAPS), tmp_path / "work"
    one, other = Swapfile(str(place / "zombies.swap")), Swapfile("/x/zombies.swap")
    tools = NodeTools(workers, host, place)
    with hold_journal(place, host) as journal:
        journal.add(one, other)
    with hold_journal(place, host) as journal:
        assert journal.changes == [one, other]
        assert not journal.earlier_boot
        undo(journal, tools, one)
    assert read_journal(place, host).changes == [other]
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / FILE).stat().st_mode & 0o777 == 0o600
    with hold_journal(place, host) as journal:
        undo(journal, tools)
    assert list(place.iterdir()) == []


def test_a_journal_knows_an_earlier_boot(tmp_path):
    host, place = node(tmp_path), tmp_path / "work"
    with hold_journal(place, host) as journal:
        journal.add(SwapOff("/dev/sdb1", -2))
    node(tmp_path, **{"sys/kernel/random/boot_id": "cccc\n"})
    read = read_journal(place, host)
    assert read.earlier_boot
    with pytest.raises(JournalError, match="earlier boot"):
        read.add(SwapOff("/dev/sdb1", -2))


def test_one_remedy_at_a_time(tmp_path):
    host = node(tmp_path)
    with hold_journal(tmp_path / "work", host), pytest.raises(JournalError, match="another exhume fix"):  # noqa: SIM117
        with hold_journal(tmp_path / "work", host):
            pass


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{\n", JournalDamaged),
        ("[]\n", JournalDamaged),
        ('{"version": 1, "boot_id": "x"}\n{"id": 1, "kind": "swapfile"}\n', JournalDamaged),
        (json.dumps({"version": 99, "boot_id": "x"}) + "\n", JournalError),
        ('{"version": 1, "boot_id": "x"}\n{"id": 1, "kind": "castle"}\n', JournalError),
    ],
)
def test_a_journal_that_can_not_be_understood_is_refused(tmp_path, content, error):
    host, place = node(tmp_path), tmp_path / "work"
    place.mkdir(mode=0o700)
    (place / FILE).write_text(content)
    with pytest.raises(error, match=r"journal\.jsonl"):
        read_journal(place, host)


def test_a_line_that_was_being_written_when_its_writer_died_was_not_done(tmp_path):
    host, place = node(tmp_path), tmp_path / "work"
    one, other = SwapOff("/dev/sdb1", 3), SwapOff("/dev/sdc1", 4)
    with hold_journal(place, host) as journal:
        journal.add(one)
    with (place / FILE).open("ab") as file:
        file.write(b'{"id": 2, "kind": "swap-')
    with hold_journal(place, host) as journal:
        assert journal.changes == [one]
        journal.add(other)
    assert read_journal(place, host).changes == [one, other]


def test_a_journal_that_was_only_created_holds_nothing(tmp_path):
    host, place = node(tmp_path), tmp_path / "work"
    with hold_journal(place, host):
        (place / FILE).touch()
    assert read_journal(place, host).changes == []


def test_after_a_reboot_only_the_file_is_left_to_remove(tmp_path, workers):
    host, place = node(tmp_path, swaps=NO_SWAPS), tmp_path / "work"
    setting = cgroup(tmp_path / "cg", swappiness="60") / "memory.swappiness"
    outside = tmp_path / "elsewhere.swap"
    outside.write_bytes(b"another owner's")
    with hold_journal(place, host) as journal:
        (place / "zombies.swap").write_bytes(b"swap")
        journal.add(
            Swapfile(str(place / "zombies.swap")),
            Swapfile(str(outside)),
            SwapOff("/dev/none", 3),
            CgroupSettings(((str(setting), "10"),)),
        )
    node(tmp_path, swaps=NO_SWAPS, **{"sys/kernel/random/boot_id": "cccc\n"})
    with hold_journal(place, host) as journal:
        undo(journal, NodeTools(workers, host, place))
        assert journal.changes == []
    assert not (place / "zombies.swap").exists()
    assert outside.exists()
    assert setting.read_text() == "60"


def test_what_can_not_be_undone_stays_in_the_journal(tmp_path, workers):
    host, place = node(tmp_path, swaps=NO_SWAPS), tmp_path / "work"
    lost, file = SwapOff(str(tmp_path / "no-such-swap"), 3), Swapfile(str(place / "gone.swap"))
    with hold_journal(place, host) as journal:
        journal.add(file, lost)
        with pytest.raises(JobFailed, match="could not be turned on again"):
            undo(journal, NodeTools(workers, host, place))
    assert read_journal(place, host).changes == [lost]


@pytest.mark.root
def test_a_directory_that_another_user_planted_is_refused(tmp_path):
    host, place, victim = node(tmp_path), tmp_path / "work", tmp_path / "victim"
    place.mkdir()
    planted = [
        {"version": 1, "boot_id": "aaaabbbb"},
        {"id": 1, "kind": "cgroup-settings", "values": [[str(victim), "x"]]},
    ]
    (place / FILE).write_text("".join(json.dumps(line) + "\n" for line in planted))
    os.chown(place, 65534, 65534)
    with pytest.raises(JournalError, match="work-dir"), hold_journal(place, host):
        raise AssertionError("it was held")
    os.chown(place, 0, 0)
    place.chmod(0o777)
    with pytest.raises(JournalError), hold_journal(place, host):
        raise AssertionError("it was held")
    assert not victim.exists()


@pytest.mark.parametrize("name", ["elsewhere/memory.swappiness", "work/cron.d", "work/../elsewhere/memory.swappiness"])
def test_settings_are_written_below_a_mount_of_cgroups_and_nowhere_else(tmp_path, workers, name):
    below = tmp_path / "work"
    for directory in (below, tmp_path / "elsewhere"):
        directory.mkdir()
    victim = tmp_path / name
    host = node(tmp_path, **{"self/mountinfo": f"1 0 0:30 / {below} rw - cgroup2 cgroup2 rw\n"})
    with hold_journal(tmp_path / "journal", host) as journal:
        journal.add(CgroupSettings(((str(victim), "0"),)))
        with pytest.raises(JobFailed, match="not a setting of a cgroup"):
            undo(journal, NodeTools(workers, host, tmp_path))
    assert not Path(victim).exists()


def test_live_cgroups_of_v1_are_kept_out_of_swap_and_get_their_settings_back(tmp_path, workers):
    host, top = node(tmp_path), tmp_path / "docker"
    for name, value in (("", "60"), ("a", "60"), ("a/deep", "10"), ("never", "0")):
        cgroup(top / name, swappiness=value)
    with hold_journal(tmp_path / "work", host) as journal:
        with keep_out_of_swap((str(top),), journal, NodeTools(workers, host, top)):
            assert {file.read_text() for file in top.rglob("memory.swappiness")} == {"0"}
            (change,) = read_journal(tmp_path / "work", host).changes
            assert len(change.values) == 4
            # A container that comes meanwhile takes over what its parent has.
            cgroup(top / "a/new", swappiness="0")
        assert journal.changes == []
    values = {str(file.parent.relative_to(top)): file.read_text() for file in top.rglob("memory.swappiness")}
    assert values == {".": "60", "a": "60", "a/deep": "10", "a/new": "60", "never": "0"}


def test_live_cgroups_of_v2_are_kept_out_of_swap_but_not_the_parent(tmp_path, workers):
    host, top = node(tmp_path), tmp_path / "kubepods"
    cgroup(top, swap__max="max")
    cgroup(top / "pod", swap__max="1048576")
    with (
        hold_journal(tmp_path / "work", host) as journal,
        keep_out_of_swap((str(top),), journal, NodeTools(workers, host, top)),
    ):
        assert (top / "memory.swap.max").read_text() == "max"
        assert (top / "pod/memory.swap.max").read_text() == "0"
    assert (top / "pod/memory.swap.max").read_text() == "1048576"


def test_a_cgroup_that_goes_meanwhile_is_no_error(tmp_path, workers):
    host, top = node(tmp_path), cgroup(tmp_path / "docker", swappiness="60")
    gone = cgroup(top / "gone", swappiness="60")
    with (
        hold_journal(tmp_path / "work", host) as journal,
        keep_out_of_swap((str(top),), journal, NodeTools(workers, host, top)),
    ):
        (gone / "memory.swappiness").unlink()
        gone.rmdir()
    assert (top / "memory.swappiness").read_text() == "60"
    assert not gone.exists()
