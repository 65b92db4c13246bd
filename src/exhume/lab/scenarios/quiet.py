"""A busy machine with nothing wrong: several kinds of healthy work come and go, and none keeps others from theirs."""

import time

from exhume.lab.background import batch, buffers, compression, file_work, forks, loopback, sleepers
from exhume.lab.stage import Stage

SUMMARY = "a busy, healthy machine: nothing to find"
_PAUSE_S = (0.5, 2.0)


def play(stage: Stage) -> None:
    kinds = [batch, buffers, compression, file_work, forks, loopback, sleepers]
    stage.rng.shuffle(kinds)
    began = time.monotonic()
    for start in kinds[: stage.rng.randint(2, 5)]:
        left = stage.seconds - (time.monotonic() - began)
        start(stage, max(1.0, stage.rng.uniform(0.5, 1.0) * left))
        stage.wait(min(left, stage.rng.uniform(*_PAUSE_S)))
    stage.wait(max(0.0, stage.seconds - (time.monotonic() - began)))
