"""Opening the files of watched processes: only what was looked at, and nothing that acts when it is opened."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exhume.collect.symbols.locate import open_regular
from exhume.collect.symbols.mappings import FileKey


def test_a_link_changed_between_the_look_and_the_opening_opens_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regular, pipe, link = tmp_path / "regular", tmp_path / "pipe", tmp_path / "link"
    regular.write_bytes(b"content")
    os.mkfifo(pipe)
    link.symlink_to(regular)
    real_stat, real_fstat, real_open = os.stat, os.fstat, os.open

    def change() -> None:
        link.unlink(missing_ok=True)
        link.symlink_to(pipe)

    def stat(path, **how):
        status = real_stat(path, **how)
        change()
        return status

    def fstat(fd):
        status = real_fstat(fd)
        change()
        return status

    read_from: list[os.stat_result] = []

    def remembered(path, flags, *rest, **how):
        fd = real_open(path, flags, *rest, **how)
        if not flags & os.O_PATH:
            read_from.append(real_fstat(fd))
        return fd

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "fstat", fstat)
    monkeypatch.setattr(os, "open", remembered)
    file = open_regular(str(link))
    monkeypatch.undo()
    assert file is not None
    with file:
        assert file.read(0, 7) == b"content"
    assert [status.st_ino for status in read_from] == [regular.stat().st_ino]


# Flips a link between its targets as fast as it can, until its standard input ends.
FLIP = """
import os, sys, threading
link, *targets = sys.argv[1:]
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set())).start()
print("flipping", flush=True)
while not done.is_set():
    for target in targets:
        os.symlink(target, link + ".next")
        os.replace(link + ".next", link)
"""
IN_OPEN = 0x20
FLIPPED_S = 1.0


class Opens:
    """Whether a file is opened for more than its name: O_PATH gives no event (fs/open.c, do_dentry_open)."""

    def __init__(self, *paths: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for path in paths:
            assert libc.inotify_add_watch(self._fd, os.fsencode(path), IN_OPEN) >= 0, path

    def any(self) -> bool:
        try:
            return bool(os.read(self._fd, 4096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._fd)


@pytest.mark.slow
@pytest.mark.timeout(30)
@pytest.mark.parametrize("device", [False, pytest.param(True, marks=pytest.mark.root)], ids=["pipe", "device"])
@pytest.mark.parametrize("below_root", [False, True], ids=["path", "root"])
def test_nothing_but_the_regular_file_is_opened_however_fast_a_link_changes(
    tmp_path: Path, device: bool, below_root: bool
) -> None:
    regular, other, link = tmp_path / "regular", tmp_path / "other", tmp_path / "link"
    regular.write_bytes(b"content")
    if device:
        os.mknod(other, 0o20600, os.makedev(1, 3))  # null
    else:
        os.mkfifo(other)
    link.symlink_to(regular)
    root, path = (str(tmp_path), "/link") if below_root else ("", str(link))
    opens = Opens(other)
    # Relative, so that they mean the same below a root.
    args = [sys.executable, "-c", FLIP, link, regular.name, other.name]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flip:
        assert flip.stdin is not None and flip.stdout is not None
        flip.stdout.readline()
        found = refused = 0
        until = time.monotonic() + FLIPPED_S
        while time.monotonic() < until or not (found and refused):
            file = open_regular(path, root=root)
            if file is None:
                refused += 1
                continue
            with file:
                found += 1
                assert file.read(0, 7) == b"content"
        flip.stdin.close()
    assert not opens.any(), f"{found} opened, {refused} refused"
    opens.close()


def test_another_file_than_the_mapped_one_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    status = path.stat()
    flags: list[int] = []
    real_open = os.open

    def remembered(path, given, *rest, **how):
        flags.append(given)
        return real_open(path, given, *rest, **how)

    monkeypatch.setattr(os, "open", remembered)
    key = FileKey(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino, 0, str(path))
    assert open_regular(str(path), key._replace(inode=status.st_ino + 1)) is None
    assert all(given & os.O_PATH for given in flags)
    file = open_regular(str(path), key)
    assert file is not None
    file.close()
