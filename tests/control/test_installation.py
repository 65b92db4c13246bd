"""Installing and uninstalling services on a made-up node: repeatable, undone exactly, careful with others' files."""

import contextlib
import json
import os
from pathlib import Path

import pytest

from exhume.control import installation
from exhume.control.installation import (
    ALLOWED_ADDRESSES,
    CAPABILITIES,
    OWN_FILES,
    PAGE,
    RECORDER,
    SYSUSERS,
    UNIT_DIRECTORY,
    UNITS,
    WANTS,
    Account,
    InstallTools,
    hold_installation,
    install,
    plan_for,
    uninstall,
)
from exhume.control.journal import JournalDamaged, JournalError
from exhume.control.managers import ActionFailed

LAST = 40


class FakeUnits:
    def __init__(self) -> None:
        self.orders: list[tuple[str, ...]] = []
        self.result = "done"

    def start(self, name: str) -> str:
        self.orders.append(("start", name))
        return self.result

    def stop(self, name: str) -> str:
        self.orders.append(("stop", name))
        return "done"

    def daemon_reload(self) -> None:
        self.orders.append(("reload",))

    def reset_failed(self, name: str) -> None:
        self.orders.append(("reset", name))


class Node:
    """A root directory of its own, with a pretended account."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units = FakeUnits()
        self.ran: list[tuple[str, ...]] = []
        (root / "etc/systemd/system").mkdir(parents=True)
        self.tools = InstallTools(self.units, lambda name: root / name.lstrip("/"))

    @property
    def work(self) -> Path:
        return self.root / "var/lib/exhume-install"

    def tree(self) -> dict[str, str]:
        return {
            os.fspath(path.relative_to(self.root)): os.fspath(path.readlink())
            if path.is_symlink()
            else path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_symlink() or path.is_file()
        }

    def install(self, program: str = "/opt/exhume/bin/exhume", **options):
        with hold_installation(self.work) as journal:
            return install(plan_for(program, **{"page": True, "last_capability": LAST, **options}), journal, self.tools)

    def uninstall(self, *, purge: bool = False):
        with hold_installation(self.work) as journal:
            return uninstall(journal, self.tools, purge=purge)


@pytest.fixture
def node(tmp_path, monkeypatch):
    made = Node(tmp_path / "node")
    has = {"account": False}

    def run(*command: str) -> None:
        made.ran.append(command)
        has["account"] = command[0] == "systemd-sysusers"

    monkeypatch.setattr(installation, "_run", run)
    monkeypatch.setattr(installation, "_account_exists", lambda: has["account"])
    return made


def test_what_is_installed_is_removed_again(node):
    before = node.tree()
    outcome = node.install(allowed=["192.0.2.7"])
    assert not outcome.left
    written = node.tree()
    assert {f"/{path}" for path in written} >= {*OWN_FILES, *(f"{WANTS}/{unit}" for unit in UNITS)}
    assert written[f"etc/systemd/system/multi-user.target.wants/{RECORDER}"] == f"../{RECORDER}"
    assert node.units.orders == [("reload",), ("start", RECORDER), ("start", PAGE)]
    assert node.ran == [("systemd-sysusers", os.fspath(node.root / SYSUSERS[1:]))]
    outcome = node.uninstall(purge=True)
    assert not outcome.left
    assert node.tree() == before
    for made in ("etc/sysusers.d", Path(ALLOWED_ADDRESSES[1:]).parent):
        assert not (node.root / made).exists(), "a directory that was made for it"
    assert not node.work.exists()
    assert node.units.orders[3:] == [
        ("stop", PAGE),
        ("reset", PAGE),
        ("stop", RECORDER),
        ("reset", RECORDER),
        ("reload",),
    ]


def test_the_account_and_recordings_stay_without_purge(node):
    node.install()
    recording = node.root / "var/lib/exhume"
    recording.mkdir()
    (recording / "recorder.lock").write_text("")
    node.uninstall()
    assert len(node.ran) == 1
    assert recording.exists()
    with hold_installation(node.work) as journal:
        assert journal.changes == [Account("exhume")]
    node.uninstall(purge=True)
    assert node.ran[1] == ("userdel", "exhume")
    assert not recording.exists()
    assert not node.work.exists()


def test_installing_again_changes_nothing(node):
    node.install()
    before, journal = node.tree(), (node.work / "journal.jsonl").read_bytes()
    outcome = node.install()
    assert node.tree() == before
    assert (node.work / "journal.jsonl").read_bytes() == journal
    assert not any(line.startswith("wrote") for line in outcome.done)
    assert ("stop", RECORDER) not in node.units.orders


def test_an_upgrade_renews_the_units_and_starts_them_again(node):
    before = node.tree()
    node.install("/opt/old/bin/exhume")
    node.units.orders.clear()
    node.install("/opt/new/bin/exhume")
    assert "ExecStart=/opt/new/bin/exhume record\n" in node.tree()[f"etc/systemd/system/{RECORDER}"]
    expected = [(order, unit) for unit in UNITS for order in ("stop", "start")]
    assert node.units.orders == [("reload",), *expected]
    node.uninstall(purge=True)
    assert node.tree() == before


def test_addresses_are_kept_by_an_upgrade_and_replaced_by_others(node):
    before, place = node.tree(), node.root / ALLOWED_ADDRESSES[1:]
    node.install()
    assert not place.exists()
    node.units.orders.clear()
    node.install(allowed=["192.0.2.7", "10.1.0.0/16"])
    assert "IPAddressAllow=192.0.2.7 10.1.0.0/16\n" in place.read_text()
    # Only the recorder has to know of it.
    assert node.units.orders == [("reload",), ("stop", RECORDER), ("start", RECORDER), ("start", PAGE)]
    node.install("/opt/new/bin/exhume")
    assert "IPAddressAllow=192.0.2.7 10.1.0.0/16\n" in place.read_text()
    node.install("/opt/new/bin/exhume", allowed=["2001:db8::7"])
    assert "IPAddressAllow=2001:db8::7\n" in place.read_text() and "192.0.2.7" not in place.read_text()
    node.uninstall(purge=True)
    assert node.tree() == before


def test_a_drop_in_of_another_is_left(node):
    before, place = node.tree(), node.root / Path(ALLOWED_ADDRESSES[1:]).with_name("override.conf")
    node.install(allowed=["192.0.2.7"])
    place.write_text("[Service]\nCPUQuota=20%\n")
    node.uninstall(purge=True)
    assert node.tree() == {**before, str(place.relative_to(node.root)): "[Service]\nCPUQuota=20%\n"}


def test_a_file_of_another_is_not_overwritten(node):
    place = node.root / f"{UNIT_DIRECTORY[1:]}/{PAGE}"
    place.write_text("mine")
    before = node.tree()
    with pytest.raises(ActionFailed, match=PAGE):
        node.install()
    assert {path: text for path, text in node.tree().items() if "exhume-install" not in path} == before


@pytest.mark.parametrize("again", [True, False])
def test_a_file_that_was_changed_since_is_left_and_named(node, again):
    node.install("/opt/old/bin/exhume")
    place = node.root / f"{UNIT_DIRECTORY[1:]}/{RECORDER}"
    place.write_text("changed")
    outcome = node.install("/opt/new/bin/exhume") if again else node.uninstall()
    assert place.read_text() == "changed"
    assert len(outcome.left) == 1
    assert RECORDER in outcome.left[0]


def test_a_unit_that_does_not_start_is_reported_and_can_be_uninstalled(node):
    before = node.tree()
    node.units.result = "failed"
    with pytest.raises(ActionFailed, match="journalctl"):
        node.install()
    node.uninstall(purge=True)
    assert node.tree() == before


@pytest.mark.parametrize("at", range(12))
def test_what_was_killed_halfway_is_undone_or_completed(node, monkeypatch, at):
    """Any change may be the last: each is in the journal before it is made."""
    before = node.tree()
    left = [at]

    def cut(original):
        def call(*args, **words):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return original(*args, **words)

        return call

    for name in ("rename", "symlink_to", "mkdir"):
        monkeypatch.setattr(Path, name, cut(getattr(Path, name)))
    monkeypatch.setattr(node.units, "start", cut(node.units.start))
    with contextlib.suppress(KeyboardInterrupt):
        node.install()
    left[0] = 1000
    if at % 2:
        assert not node.install().left
    node.uninstall(purge=True)
    assert node.tree() == before


def test_one_command_at_a_time(node):
    with hold_installation(node.work), pytest.raises(JournalError), hold_installation(node.work):
        pass


@pytest.mark.parametrize(
    "line",
    [
        {"id": 1, "kind": "file", "path": "/etc/passwd", "sha256": "0" * 64, "made": []},
        {"id": 1, "kind": "link", "path": "/etc/motd", "target": "x", "made": []},
        {"id": 1, "kind": "started", "name": "ssh.service"},
    ],
)
def test_a_journal_that_names_files_of_others_is_refused(node, line):
    node.work.mkdir(parents=True, mode=0o700)
    head = {"version": 1, "boot_id": "installation"}
    (node.work / "journal.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(line)}\n")
    with pytest.raises(JournalDamaged):
        node.uninstall()


def test_only_the_recorder(node):
    node.install(page=False)
    assert not (node.root / f"{UNIT_DIRECTORY[1:]}/{PAGE}").exists()


def test_a_kernel_without_perfmon_gets_the_older_capability():
    units = {
        last: plan_for("/x", page=False, last_capability=last).files[f"{UNIT_DIRECTORY}/{RECORDER}"].decode()
        for last in (37, 38)
    }
    assert "CapabilityBoundingSet=CAP_SYS_ADMIN " in units[37]
    assert f"CapabilityBoundingSet={' '.join(CAPABILITIES)}\n" in units[38]
    assert "CAP_SYS_ADMIN" not in units[38]


def test_recordings_behind_a_link_are_not_removed(node, tmp_path):
    node.install()
    (tmp_path / "elsewhere").mkdir()
    (node.root / "var/lib/exhume").symlink_to(tmp_path / "elsewhere")
    outcome = node.uninstall(purge=True)
    assert len(outcome.left) == 1
    assert (tmp_path / "elsewhere").is_dir()
