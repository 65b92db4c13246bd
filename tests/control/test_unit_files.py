"""Our files in the node's unit directory: nothing of others is ever touched, whatever a unit is called."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.control.managers import ActionFailed, Kept
from exhume.control.unit_files import OwnFiles, directory_of, drop_in_of, drop_in_text, has_room_for_drop_in
from exhume.model.errors import UsageError

UNITS = "etc/systemd/system"
MOUNT = ("mount", "-t", "tmpfs", "-o", "size=64k", "exhume-test")
HOSTILE = [
    "../../x.service",
    "a/../../b.service",
    "$(touch x).service",
    "a;b.service",
    "a\nb.service",
    "-rf",
    "",
    "/",
    "..",
]
ODD = ["-rf.service", "a\\x2db\\x2fc.service", "x@:y.service", f"{'n' * 245}.service"]


@pytest.fixture
def files(tmp_path) -> OwnFiles:
    (tmp_path / UNITS).mkdir(parents=True)
    return OwnFiles(lambda name: tmp_path / name.lstrip("/"))


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_are_none_touch_nothing(files, tmp_path, name):
    for act in (directory_of, files.look, files.mask, files.unmask, lambda unit: files.write_drop_in(unit, "x")):
        with pytest.raises(UsageError, match="not a unit name"):
            act(name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["etc", "system", "systemd"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_have_their_drop_in_and_lose_it_again(files, tmp_path, name):
    before = files.look(name)
    text = drop_in_text(name, "20260101-000000-abcd", "now")
    files.write_drop_in(name, text)
    path = tmp_path / UNITS / f"{name}.d/90-exhume.conf"
    assert path.read_text() == text
    assert f"\nConditionPathExists=!/{UNITS}/{name}.d/90-exhume.conf\n" in text
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o644, 0o755)
    assert files.remove_drop_in(name, text, before)
    assert list((tmp_path / UNITS).iterdir()) == []
    assert not files.remove_drop_in(name, text, before), "again is no error"


def test_a_name_without_room_for_a_drop_in_is_masked(files, tmp_path):
    name = f"{'n' * 246}.service"
    assert len(name) == 254 and not has_room_for_drop_in(name)
    files.mask(name)
    files.mask(name)
    assert (tmp_path / UNITS / name).readlink() == Path("/dev/null")
    assert files.unmask(name) and not files.unmask(name)
    (tmp_path / UNITS / name).write_text("[Service]\n")
    with pytest.raises(ActionFailed, match="there already"):
        files.mask(name)
    with pytest.raises(Kept, match="no longer the link"):
        files.unmask(name)


def test_directories_and_files_of_others_stay(files, tmp_path):
    place = tmp_path / UNITS / "a.service.d"
    place.mkdir()
    before = files.look("a.service")
    files.write_drop_in("a.service", "ours\n")
    files.remove_drop_in("a.service", "ours\n", before)
    assert place.is_dir(), "it was there before"
    before = files.look("b.service")
    files.write_drop_in("b.service", "ours\n")
    (tmp_path / UNITS / "b.service.d/50-theirs.conf").write_text("[Unit]\n")
    files.remove_drop_in("b.service", "ours\n", before)
    assert [path.name for path in (tmp_path / UNITS / "b.service.d").iterdir()] == ["50-theirs.conf"]


def test_a_drop_in_that_was_changed_since_is_left(files, tmp_path):
    before = files.look("a.service")
    files.write_drop_in("a.service", "ours\n")
    path = tmp_path / UNITS / "a.service.d/90-exhume.conf"
    path.write_text("ours\n# and theirs\n")
    with pytest.raises(Kept, match="was changed since"):
        files.remove_drop_in("a.service", "ours\n", before)
    assert path.read_text() == "ours\n# and theirs\n"
    with pytest.raises(ActionFailed, match="not exhume's"):
        files.write_drop_in("a.service", "ours\n")


def test_links_lead_nowhere(files, tmp_path):
    """Neither a directory nor a file that is a link is followed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / UNITS / "a.service.d").symlink_to(elsewhere)
    with pytest.raises(ActionFailed, match="not a plain directory"):
        files.write_drop_in("a.service", "ours\n")
    with pytest.raises(Kept):
        files.remove_drop_in("a.service", "ours\n", {})
    (tmp_path / UNITS / "b.service.d").mkdir()
    precious = tmp_path / "precious"
    precious.write_text("ours\n")
    (tmp_path / UNITS / "b.service.d/90-exhume.conf").symlink_to(precious)
    with pytest.raises(ActionFailed):
        files.write_drop_in("b.service", "ours\n")
    with pytest.raises(Kept):
        files.remove_drop_in("b.service", "ours\n", {})
    (tmp_path / UNITS / "c.service.d").mkdir()
    (tmp_path / UNITS / "c.service.d/.90-exhume.new").symlink_to(precious)
    files.write_drop_in("c.service", "other\n")
    assert precious.read_text() == "ours\n" and list(elsewhere.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "etc").write_text("a file")
    files = OwnFiles(lambda name: tmp_path / name.lstrip("/"))
    with pytest.raises(ActionFailed, match=r"90-exhume.conf can't be written"):
        files.write_drop_in("a.service", "ours\n")
    assert not files.remove_drop_in("a.service", "ours\n", {})
    assert drop_in_of("a.service").endswith("/a.service.d/90-exhume.conf")


@pytest.fixture
def read_only(tmp_path) -> Iterator[OwnFiles]:
    """A node whose /etc can't be written to, as it is after an error of its disk."""
    (tmp_path / "etc").mkdir()
    subprocess.run([*MOUNT, tmp_path / "etc"], check=True)
    try:
        (tmp_path / UNITS).mkdir(parents=True)
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "etc"], check=True)
        yield OwnFiles(lambda name: tmp_path / name.lstrip("/"))
    finally:
        # A program that walks over all file systems of the machine may be in it just then.
        subprocess.run(["umount", "-l", tmp_path / "etc"], check=True)


@pytest.mark.root
def test_a_read_only_disk_is_reported_first_and_blocks_no_rollback(read_only):
    assert "read-only" in read_only.drop_in_obstacle("a.service")
    assert "read-only" in read_only.mask_obstacle("a.service")
    text = drop_in_text("a.service", "f", "now")
    with pytest.raises(ActionFailed, match="Read-only"):
        read_only.write_drop_in("a.service", text)
    # Nothing is there, so there is nothing to remove: what was stopped before it can be started again.
    assert read_only.remove_drop_in("a.service", text, {"directory": False, "units": True}) is False
    assert read_only.unmask("a.service") is False
