"""The journal of remedies: what another user left in its place is not carried out."""

import json
import os
import stat

import pytest

from exhume.control.changes import SwapOff, hold_journal
from exhume.control.journal import FILE, JournalError, write_document
from exhume.model.clock import read_boot_id
from exhume.procfs.host import Host


def planted(place, path) -> None:
    change = {"id": 1, "kind": "cgroup-settings", "values": [[str(path), "their text"]]}
    head = {"version": 1, "boot_id": read_boot_id(Host().proc)}
    place.mkdir(exist_ok=True)
    (place / FILE).write_text("".join(json.dumps(line) + "\n" for line in (head, change)))


@pytest.mark.root
def test_a_journal_in_a_directory_of_another_user_is_refused(tmp_path):
    place = tmp_path / "work"
    planted(place, tmp_path / "victim")
    os.chown(place, 65534, 65534)
    with pytest.raises(JournalError, match="can be written by others"), hold_journal(place, Host()):
        pytest.fail("it was taken")


@pytest.mark.parametrize("path", ["/etc/cron.d/x", "/sys/fs/cgroup/../../../etc/x", "/sys/fs/cgroup/cgroup.procs"])
def test_only_settings_of_cgroups_are_put_back(tmp_path, path):
    planted(tmp_path / "work", path)
    with pytest.raises(JournalError, match="not a file of a cgroup"), hold_journal(tmp_path / "work", Host()):
        pytest.fail("it was taken")


def test_journals_and_documents_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        place = tmp_path / "work"
        with hold_journal(place, Host()) as journal:
            journal.add(SwapOff("/dev/none", 0))
            write_document(place / "fixes" / "x.json", 1, {})
            found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (place, *place.rglob("*"))}
    finally:
        os.umask(before)
    assert found == {"work": 0o700, "fixes": 0o700, FILE: 0o600, "x.json": 0o600}


def test_a_planted_link_is_not_written_through(tmp_path):
    victim, place = tmp_path / "victim", tmp_path / "work"
    victim.write_text("precious")
    (place / "fixes").mkdir(parents=True)
    (place / "fixes" / ".x.json").symlink_to(victim)
    write_document(place / "fixes" / "x.json", 1, {})
    (place / FILE).symlink_to(victim)
    with pytest.raises(JournalError, match=FILE), hold_journal(place, Host()):
        pytest.fail("it was taken")
    assert victim.read_text() == "precious"


def test_a_journal_that_becomes_a_link_is_not_written_through(tmp_path):
    victim, place = tmp_path / "victim", tmp_path / "work"
    victim.write_text("precious")
    with hold_journal(place, Host()) as journal:
        (place / FILE).symlink_to(victim)
        with pytest.raises(JournalError, match="can't be written"):
            journal.add(SwapOff("/dev/none", 0))
    assert victim.read_text() == "precious"
