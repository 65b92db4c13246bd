"""Healthy work in the background of a scenario: compression, short programs, files, loopback traffic, memory."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from exhume.lab.stage import Stage


class Work(NamedTuple):
    """A program, the stem of its processes' names, and its argument, drawn at random."""

    program: str
    stem: str
    draw: Callable[[Random], object]

    def start(self, stage: Stage, seconds: float) -> None:
        if not self.program:
            return
        spool = (stage.directory / "spool",) if self.program == "files.file_churn" else ()
        argument = self.draw(stage.rng)
        name = f"{self.stem}-{stage.rng.getrandbits(12):03x}"
        stage.start(self.program, seconds, *spool, argument, name=name)


# Each is light: a machine with any of them has most of its time to spare, and no process waits.
BACKGROUNDS = {
    "nothing": Work("", "", lambda rng: None),
    "compression": Work("cpu.compress", "pack", lambda rng: f"{rng.uniform(0.1, 0.4):.2f}"),
    "forks": Work("processes.spawn", "checks", lambda rng: rng.randint(20, 120)),
    "files": Work("files.file_churn", "spool", lambda rng: rng.randint(1 << 10, 8 << 10)),
    "loopback": Work("network.loopback", "mesh", lambda rng: rng.randint(200, 2_000)),
    "buffers": Work("memory.buffers", "cache", lambda rng: rng.randint(2, 24)),
    "sleepers": Work("cpu.sleepers", "pool", lambda rng: rng.randint(5, 40)),
}
# A job that takes most of one core, on a machine that has others.
BATCH = Work("cpu.compress", "batch", lambda rng: f"{rng.uniform(0.7, 0.95):.2f}")
