"""A program starts processes that end at once, as fast as its core allows."""

import shutil

from exhume.lab.stage import Stage

SUMMARY = "a program starts processes that end at once, as fast as a core allows"


def play(stage: Stage) -> None:
    # With an exec or without: a shell script's storm, or a server's that forks for each request.
    program = stage.rng.choice(("fork", shutil.which("true") or "fork"))
    stage.start("breed", str(stage.seconds), program, core=stage.core)
    stage.wait()
