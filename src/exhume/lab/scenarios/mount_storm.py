"""A long mount table that changes all the time, and a reader that reads all of it after every change.

All mounts lie below one of the lab's own: taking that down takes down all of them at once.
"""

import subprocess

from exhume.lab.mounts import mount_tmpfs
from exhume.lab.stage import Stage
from exhume.model.errors import LabError

SUMMARY = "thousands of mounts, changed all the time, and a reader that reads them all after every change"
_FEWEST, _MOST = 2_000, 4_000
_PAUSE_S = 0.004
_PATIENCE_S = 60


def prepare(stage: Stage) -> None:
    base = stage.directory / "mounts"
    stage.leftovers.note("mount", path=str(base))
    mount_tmpfs(base, size=1 << 26, files=4 * _MOST)
    # What is mounted below is of no concern to other mount namespaces.
    subprocess.run(["mount", "--make-private", str(base)], check=True, capture_output=True)
    count = stage.rng.randint(_FEWEST, _MOST)
    filler = stage.start("mount_table", "fill", str(base), str(count))
    if filler.wait(_PATIENCE_S) != 0:
        raise LabError(f"the mounts below {base} could not be made")


def play(stage: Stage) -> None:
    base = stage.directory / "mounts"
    elsewhere = [core for core in stage.cores if core != stage.core] or stage.cores
    stage.start("mount_table", "read", str(stage.seconds), core=stage.core)
    stage.start(
        "mount_table",
        "change",
        str(base),
        str(stage.seconds),
        str(_PAUSE_S),
        name=f"{stage.name}-m",
        core=stage.rng.choice(elsewhere),
    )
    stage.wait()
