"""Processes on several cores ask for record locks of one file: the kernel has one list of them, under one spinlock."""

from exhume.lab.stage import Stage

SUMMARY = "processes on several cores spin for one lock of the kernel"
LOCKS = 6000
MOST_CORES = 4


def prepare(stage: Stage) -> None:
    path = stage.directory / "records"
    path.write_bytes(b"x")
    stage.start("hold_locks", str(stage.seconds + 600), str(path), str(LOCKS), name=f"{stage.name}-owner")


def play(stage: Stage) -> None:
    path = stage.directory / "records"
    cores = stage.rng.sample(stage.cores, min(MOST_CORES, len(stage.cores)))
    # Two on each core, and ahead of others: a core has to be in the lock while another is.
    for core in cores * 2:
        stage.start("ask_for_locks", str(stage.seconds), str(path), core=core, nice=-10)
    stage.wait()
