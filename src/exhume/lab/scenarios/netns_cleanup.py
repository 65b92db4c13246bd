"""Network namespaces that are made and dropped one after the other, faster than the kernel's worker takes them down."""

from exhume.lab.stage import Stage

SUMMARY = "a program makes and drops network namespaces; the worker that takes them down holds a core"
# Some 100 KiB of kernel memory each.
MOST_WAITING = 1_500


def play(stage: Stage) -> None:
    who = stage.rng.choice(("self", "children"))
    stage.start("churn_namespaces", str(stage.seconds), str(MOST_WAITING), who, core=stage.core)
    stage.wait()
