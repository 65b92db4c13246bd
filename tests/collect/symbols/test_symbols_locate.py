"""Opening the files of watched processes: only what was looked at, and nothing that acts when it is opened."""

import os
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
