"""A busy healthy machine: everything is used, and nobody suffers."""

from exhume.lab.stage import Stage

SUMMARY = "a busy healthy machine: compression, forks, files, loopback traffic, memory, sleeping threads"
ERRANDS = ("fork", "files", "network", "memory", "sleepers")


def play(stage: Stage) -> None:
    compressing = stage.rng.randint(1, len(stage.cores))
    wanted = ["compress"] * compressing + stage.rng.sample(ERRANDS, stage.rng.randint(2, len(ERRANDS)))
    for number, errand in enumerate(wanted):
        size = f"{stage.rng.random():.2f}"
        stage.start("errands", str(stage.seconds), errand, size, str(stage.directory), name=f"{stage.name}-{number}")
    stage.wait()
