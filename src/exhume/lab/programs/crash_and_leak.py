"""Starts a child that makes cgroups, leaves a page in each, removes them and crashes; and another one, again and again.

Words: seconds, parent cgroup, join file of the cgroup between two, name of a cgroup's join file, directory for pages,
cgroups in one life.
"""

import os
import sys
import time

PAUSE_S = 0.3


def leak(life: int, words: list[str]) -> None:
    parent, home, join, pages, count = words
    for number in range(int(count)):
        cgroup = f"{parent}/task-{life}-{number}"
        os.mkdir(cgroup)  # noqa: PTH102 (pathlib takes longer to load)
        with open(f"{cgroup}/{join}", "w") as inside:  # noqa: PTH123
            inside.write("0")
        with open(f"{pages}/{life}-{number}", "w") as page:  # noqa: PTH123
            page.write("left")
        with open(home, "w") as outside:  # noqa: PTH123
            outside.write("0")
        os.rmdir(cgroup)  # noqa: PTH106
    os.abort()


def crash_again_and_again(until: float, words: list[str]) -> None:
    life = 0
    while time.monotonic() < until:
        child = os.fork()
        if child == 0:
            leak(life, words)
        os.waitpid(child, 0)
        life += 1
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    crash_again_and_again(time.monotonic() + float(sys.argv[1]), sys.argv[2:])
