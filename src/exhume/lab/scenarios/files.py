"""File system scenarios: mounts, negative dentries, writeback."""

import subprocess
from pathlib import Path

from exhume.lab.mounts import make_ext4, mount_ext4, mount_tmpfs
from exhume.lab.stage import Scenario, Stage
from exhume.model.errors import LabError

_FEWEST, _MOST = 2_000, 4_000
_PAUSE_S = 0.004
_PATIENCE_S = 60


def prepare_mount_storm(stage: Stage) -> None:
    base = stage.directory / "mounts"
    stage.leftovers.note("mount", path=str(base))
    mount_tmpfs(base, size=1 << 26, files=4 * _MOST)
    # What is mounted below is of no concern to other mount namespaces.
    subprocess.run(["mount", "--make-private", str(base)], check=True, capture_output=True)
    count = stage.rng.randint(_FEWEST, _MOST)
    filler = stage.start("files.mount_table", "fill", str(base), str(count))
    if filler.wait(_PATIENCE_S) != 0:
        raise LabError(f"the mounts below {base} could not be made")


def mount_storm(stage: Stage) -> None:
    base = stage.directory / "mounts"
    elsewhere = [core for core in stage.cores if core != stage.core] or stage.cores
    stage.start("files.mount_table", "read", str(stage.seconds), core=stage.core)
    stage.start(
        "files.mount_table",
        "change",
        str(base),
        str(stage.seconds),
        str(_PAUSE_S),
        name=f"{stage.name}-m",
        core=stage.rng.choice(elsewhere),
    )
    stage.wait()


# About 600 MB of memory.
_MOST_NAMES = 3_000_000


def negative_dentries(stage: Stage) -> None:
    directory = stage.directory / "names"
    directory.mkdir()
    stage.start("files.probe_names", str(directory), str(stage.seconds), str(_MOST_NAMES), core=stage.core)
    stage.wait()


_IMAGE = 256 << 20
_FILES = 64
_TOTAL_MIB = 1800


def prepare_writeback_storm(stage: Stage) -> None:
    """An ext4 in a file: its journal is its own, so other writers on this machine are left alone."""
    at, image = _place(stage), stage.directory / "disk.img"
    stage.leftovers.note("mount", path=str(at))
    try:
        make_ext4(image, _IMAGE, _FILES)
        mount_ext4(image, at)
    except LabError:
        # No loop device, no mkfs: then it plays on the disk below the stage's directory.
        image.unlink(missing_ok=True)
        at.mkdir(exist_ok=True)


def writeback_storm(stage: Stage) -> None:
    if not _place(stage).is_dir():
        prepare_writeback_storm(stage)
    threads = stage.rng.choice((16, 24, 32))
    piece = stage.rng.choice((4, 16, 32))
    args = (str(threads), str(piece), "1", str(_TOTAL_MIB))
    stage.start("files.sync_writes", str(stage.seconds), str(_place(stage)), *args)
    stage.wait()


def _place(stage: Stage) -> Path:
    return stage.directory / "disk"


SCENARIOS = (
    Scenario(
        "writeback-storm",
        "writeback-storm",
        "many threads write files and want every piece on disk at once, more than the disk takes",
        writeback_storm,
        prepare_writeback_storm,
        memory=256 << 20,
    ),
    Scenario(
        "negative-dentries",
        "negative-dentries",
        "a program looks up millions of names that don't exist",
        negative_dentries,
        on_core=True,
        memory=1 << 30,
    ),
    Scenario(
        "mount-storm",
        "mount-storm",
        "thousands of mounts, changed all the time, and a reader that reads them all after every change",
        mount_storm,
        prepare_mount_storm,
        on_core=True,
    ),
)
