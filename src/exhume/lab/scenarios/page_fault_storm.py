"""A program that touches fresh memory and gives it back, without a pause."""

from exhume.lab.stage import Stage

SUMMARY = "a program maps, touches and gives back the same memory over and over on one core"


def play(stage: Stage) -> None:
    stage.start("refill", str(stage.seconds), str(stage.rng.choice((32, 64, 128, 256))), core=stage.core)
    stage.wait()
