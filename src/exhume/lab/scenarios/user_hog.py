"""A program that computes without a pause, on a core that others need too."""

from exhume.lab.stage import Stage

SUMMARY = "a program computes without a pause on a core that others need"


def prepare(stage: Stage) -> None:
    """The others: work that has to stay on that core, and had room there."""
    for number in range(stage.rng.randint(1, 2)):
        share = stage.rng.uniform(0.35, 0.45)
        name = f"{stage.name}-peer{number}"
        stage.start("short_work", str(stage.seconds + 600), f"{share:.2f}", name=name, core=stage.core)


def play(stage: Stage) -> None:
    # As a program that somebody was in a hurry about: it takes more than its fair part.
    stage.start("compute", str(stage.seconds), core=stage.core, nice=stage.rng.choice((-10, -15, -20)))
    stage.wait()
