"""Who may read a recording, and directories that another user had a hand in."""

import os
import stat
from pathlib import Path

import pytest
from tests.store.store_rows import cpu_rows, recorder, tick_at

from exhume.model.errors import RecordingError
from exhume.model.ownership import Access
from exhume.store.format.names import LOCK_NAME, RESERVE_NAME
from exhume.store.write.lock import DirectoryLock, being_recorded

NOBODY = 65534
pytestmark = pytest.mark.root


def modes(directory: Path) -> dict[str, set[int]]:
    """The modes of all that is in a recording, by kind."""
    found: dict[str, set[int]] = {"directory": {stat.S_IMODE(directory.stat().st_mode)}, "file": set()}
    for path in directory.rglob("*"):
        if path.name not in (LOCK_NAME, RESERVE_NAME):
            found["directory" if path.is_dir() else "file"].add(stat.S_IMODE(path.stat().st_mode))
    return found


def reached_as_nobody(path: Path) -> str:
    """What another user gets who opens a file: nothing, or the name of the error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.stat(path.parent)  # noqa: PTH116
            os.open(path, os.O_RDONLY)
        except OSError as error:
            said = type(error).__name__
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as stream:
        return stream.read()


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
@pytest.mark.parametrize(
    ("group", "expected"),
    [(None, {"directory": {0o700}, "file": {0o600}}), (NOBODY, {"directory": {0o750}, "file": {0o640}})],
)
def test_a_recording_is_closed_to_others_whatever_the_umask(tmp_path, umask, group, expected):
    before = os.umask(umask)
    try:
        writer = recorder(tmp_path / "r", access=Access(group))
        for index in range(3):
            writer.append("cpu", cpu_rows(tick_at(index)))
            writer.commit(tick_at(index))
        assert modes(tmp_path / "r") == expected, "live"
        writer.close()
    finally:
        os.umask(before)
    assert modes(tmp_path / "r") == expected, "sealed"
    assert stat.S_IMODE((tmp_path / "r" / LOCK_NAME).stat().st_mode) == 0o600
    if group is not None:
        assert {path.stat().st_gid for path in (tmp_path / "r").rglob("*") if path.name != LOCK_NAME} == {group}


def test_a_recording_of_before_is_tightened_and_another_directory_is_not(tmp_path):
    mine, home = tmp_path / "mine", tmp_path / "home"
    recorder(mine).close()
    mine.chmod(0o755)
    (mine / LOCK_NAME).chmod(0o644)
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    for directory, tightened in ((mine, True), (mine, False), (home, False)):
        writer = recorder(directory)
        assert writer.tightened is tightened
        writer.close()
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    assert stat.S_IMODE((mine / LOCK_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o755, "it may hold other things"


def test_a_directory_of_another_user_is_refused(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(RecordingError, match="another user"):
        DirectoryLock(theirs)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(RecordingError, match="every user"):
        DirectoryLock(open_to_all)
    assert not any(theirs.iterdir())
    assert not any(open_to_all.iterdir())


@pytest.mark.parametrize("kind", ["link", "hard link", "theirs", "fifo"])
def test_a_planted_lock_is_not_written_through(tmp_path, kind):
    victim, directory = tmp_path / "victim", tmp_path / "r"
    victim.write_text("precious")
    directory.mkdir()
    lock = directory / LOCK_NAME
    if kind == "link":
        lock.symlink_to(victim)
    elif kind == "hard link":
        lock.hardlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(lock)
    else:
        lock.write_text("precious")
        os.chown(lock, NOBODY, NOBODY)
    with pytest.raises(RecordingError):
        DirectoryLock(directory)
    assert victim.read_text() == "precious"
    assert kind in ("fifo",) or lock.read_text() == "precious"


def test_a_planted_live_directory_is_refused(tmp_path):
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "r"
    elsewhere.mkdir()
    directory.mkdir()
    (directory / "live").symlink_to(elsewhere)
    with pytest.raises(RecordingError):
        recorder(directory)
    (directory / "live").unlink()
    (directory / "live").mkdir()
    os.chown(directory / "live", NOBODY, NOBODY)
    with pytest.raises(RecordingError):
        recorder(directory)
    assert not any(elsewhere.iterdir())


def test_another_user_can_not_hold_the_lock(tmp_path):
    # The way there is open, so that it is the lock's own mode that keeps others out.
    directory = tmp_path / "r"
    directory.mkdir()
    for each in (tmp_path, *tmp_path.parents[:3], directory):
        if each != Path("/tmp"):
            each.chmod(0o755)
    DirectoryLock(directory).close()
    assert reached_as_nobody(directory / LOCK_NAME) == "PermissionError"
    DirectoryLock(directory).close()


def test_members_of_the_group_learn_whether_it_is_recorded(tmp_path, monkeypatch):
    lock = DirectoryLock(tmp_path / "r", Access(NOBODY))
    real = os.open

    def refused(path, *args, **more):
        if Path(path).name == LOCK_NAME:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", refused)
    assert being_recorded(tmp_path / "r")
    lock.close()
    assert not being_recorded(tmp_path / "r")
