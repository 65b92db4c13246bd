"""A program that has the kernel compact all memory again and again, after it made holes in its own."""

from exhume.lab.stage import Stage

SUMMARY = "the kernel is made to compact memory that is full of holes, over and over on one core"
_MIB = 256


def play(stage: Stage) -> None:
    stage.start("crumble", str(stage.seconds), str(_MIB), core=stage.core)
    stage.wait()
