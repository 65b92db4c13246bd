"""File system scenarios: mounts, negative dentries, writeback."""

import subprocess

from exhume.lab.leftovers import OwnMount
from exhume.lab.mounts import make_ext4, mount_ext4, mount_tmpfs
from exhume.lab.stage import Scenario, Stage
from exhume.model.errors import LabError

_IMAGE = 256 << 20
_FILES = 64
_TOTAL_MIB = 1800


def prepare_writeback_storm(stage: Stage) -> None:
    """Create an ext4 in a file: it has its own journal, so other writers on this machine are not affected."""
    at, image = stage.directory / "disk", stage.directory / "disk.img"
    stage.leftovers.add(OwnMount(str(at)))
    try:
        make_ext4(image, _IMAGE, _FILES)
        mount_ext4(image, at)
    except LabError:
        # Without loop devices or mkfs, it plays on the disk below the stage's directory.
        image.unlink(missing_ok=True)
        at.mkdir(exist_ok=True)


@Scenario(
    "many threads write files and want every piece on disk at once, more than the disk takes",
    prepare_writeback_storm,
    memory=256 << 20,
)
def writeback_storm(stage: Stage) -> None:
    threads = stage.rng.choice((16, 24, 32))
    piece_kib = stage.rng.choice((4, 16, 32))
    stage.run("files.sync_writes", stage.directory / "disk", threads, piece_kib, _TOTAL_MIB)


# About 600 MB of memory.
_MOST_NAMES = 3_000_000


@Scenario("a program looks up millions of names that don't exist", on_core=True, memory=1 << 30)
def negative_dentries(stage: Stage) -> None:
    directory = stage.directory / "names"
    directory.mkdir()
    stage.run("files.probe_names", directory, _MOST_NAMES, core=stage.core)


_FEWEST, _MOST = 2_000, 4_000
_PAUSE_S = 0.004
_PATIENCE_S = 60


def prepare_mount_storm(stage: Stage) -> None:
    base = stage.directory / "mounts"
    stage.leftovers.add(OwnMount(str(base)))
    mount_tmpfs(base, size=1 << 26, files=4 * _MOST)
    # Other mount namespaces must not see the mounts below.
    subprocess.run(["mount", "--make-private", str(base)], check=True, capture_output=True)
    filler = stage.start("files.fill_mounts", base, stage.rng.randint(_FEWEST, _MOST))
    if filler.wait(_PATIENCE_S) != 0:
        raise LabError(f"the mounts below {base} could not be made")


@Scenario(
    "thousands of mounts, changed all the time, and a reader that reads them all after every change",
    prepare_mount_storm,
    on_core=True,
)
def mount_storm(stage: Stage) -> None:
    base = stage.directory / "mounts"
    stage.start("files.read_mounts", stage.seconds, core=stage.core)
    # On any core: bound to a core that another scenario takes, it would change nothing and leave nothing to read.
    stage.start("files.change_mounts", stage.seconds, base, _PAUSE_S, name=f"{stage.name}-m")
    stage.wait()
