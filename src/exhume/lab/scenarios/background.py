"""Healthy work in the background of a scenario: compression, short programs, files, loopback traffic, memory."""

from collections.abc import Callable

from exhume.lab.stage import Stage


def nothing(stage: Stage, seconds: float) -> None:
    """An idle machine."""


def compression(stage: Stage, seconds: float) -> None:
    stage.start("cpu.compress", str(seconds), f"{stage.rng.uniform(0.1, 0.4):.2f}", name=_name(stage, "pack"))


def forks(stage: Stage, seconds: float) -> None:
    stage.start("processes.spawn", str(seconds), str(stage.rng.randint(20, 120)), name=_name(stage, "checks"))


def file_work(stage: Stage, seconds: float) -> None:
    rate = stage.rng.randint(1 << 10, 8 << 10)
    stage.start("files.file_churn", str(seconds), str(stage.directory / "spool"), str(rate), name=_name(stage, "spool"))


def loopback(stage: Stage, seconds: float) -> None:
    stage.start("network.loopback", str(seconds), str(stage.rng.randint(200, 2_000)), name=_name(stage, "mesh"))


def buffers(stage: Stage, seconds: float) -> None:
    stage.start("memory.buffers", str(seconds), str(stage.rng.randint(2, 24)), name=_name(stage, "cache"))


def sleepers(stage: Stage, seconds: float) -> None:
    stage.start("cpu.sleepers", str(seconds), str(stage.rng.randint(5, 40)), name=_name(stage, "pool"))


def batch(stage: Stage, seconds: float) -> None:
    """A job that takes most of one core, on a machine that has others."""
    stage.start("cpu.compress", str(seconds), f"{stage.rng.uniform(0.7, 0.95):.2f}", name=_name(stage, "batch"))


# Each is light: a machine with any of them has most of its time to spare, and no process waits.
BACKGROUNDS: dict[str, Callable[[Stage, float], None]] = {
    "nothing": nothing,
    "compression": compression,
    "forks": forks,
    "files": file_work,
    "loopback": loopback,
    "buffers": buffers,
    "sleepers": sleepers,
}


def _name(stage: Stage, kind: str) -> str:
    return f"{kind}-{stage.rng.getrandbits(12):03x}"
