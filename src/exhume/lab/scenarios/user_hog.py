"""A program that computes without a pause, on a core that others need too."""

from exhume.lab.stage import Stage

SUMMARY = "a program computes without a pause on a core that others need"


def play(stage: Stage) -> None:
    stage.start("compute", str(stage.seconds), core=stage.core)
    # The others: short work, again and again, that has to wait for its turn now.
    stage.start("compute", str(stage.seconds), core=stage.core, name=f"{stage.name}-peer", nice=5)
    stage.wait()
