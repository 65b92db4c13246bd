"""Starts a child that joins a cgroup and takes more memory than it may; when that is killed, another one.

Words: seconds, join file, bytes to take, pause between two (seconds), how many at most.
"""

import os
import signal
import sys
import time

STEP = 1 << 20


def outgrow(join_file: str, most: int) -> None:
    """Take memory until somebody objects."""
    with open(join_file, "w") as join:  # noqa: PTH123 (pathlib takes longer to load)
        join.write("0")
    held = [bytearray(b"\xee" * STEP) for _ in range(most // STEP)]
    sys.exit(f"{len(held)} MiB were granted: there is no limit here")


def supervise(until: float, join_file: str, most: int, pause: float, times: int) -> None:
    for _ in range(times):
        child = os.fork()
        if child == 0:
            outgrow(join_file, most)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit("the child was not killed")
        if time.monotonic() + pause >= until:
            return
        time.sleep(pause)


if __name__ == "__main__":
    seconds, join, size, pause, times = sys.argv[1:]
    supervise(time.monotonic() + float(seconds), join, int(size), float(pause), int(times))
