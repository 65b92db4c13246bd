"""A program whose threads write and sync more than the disk takes, on a file system of its own where one can be had."""

from pathlib import Path

from exhume.lab.mounts import make_ext4, mount_ext4
from exhume.lab.stage import Stage
from exhume.model.errors import LabError

SUMMARY = "many threads write files and want every piece on disk at once, more than the disk takes"
_IMAGE = 256 << 20
_FILES = 64
_TOTAL_MIB = 1800


def prepare(stage: Stage) -> None:
    """An ext4 in a file: its journal is nobody else's, so whoever else writes on this machine is left alone."""
    at, image = _place(stage), stage.directory / "disk.img"
    stage.leftovers.note("mount", path=str(at))
    try:
        make_ext4(image, _IMAGE, _FILES)
        mount_ext4(image, at)
    except LabError:
        # No loop device, no mkfs: then it plays on the disk below the stage's directory.
        image.unlink(missing_ok=True)
        at.mkdir(exist_ok=True)


def play(stage: Stage) -> None:
    if not _place(stage).is_dir():
        prepare(stage)
    threads = stage.rng.choice((16, 24, 32))
    piece = stage.rng.choice((4, 16, 32))
    words = (str(threads), str(piece), "1", str(_TOTAL_MIB))
    stage.start("scribble", str(stage.seconds), str(_place(stage)), *words)
    stage.wait()


def _place(stage: Stage) -> Path:
    return stage.directory / "disk"
