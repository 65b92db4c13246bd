"""A program looks up names that don't exist, by the million, and the kernel remembers each of them."""

from exhume.lab.stage import Stage

SUMMARY = "a program looks up millions of names that don't exist"
# About 600 MB of memory.
_MOST_NAMES = 3_000_000


def play(stage: Stage) -> None:
    directory = stage.directory / "names"
    directory.mkdir()
    stage.start("probe_names", str(directory), str(stage.seconds), str(_MOST_NAMES), core=stage.core)
    stage.wait()
