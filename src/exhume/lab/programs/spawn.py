"""Starts short programs at a steady pace, as build tools and health checks do. Words: seconds, programs a second."""

import os
import sys
import time

if __name__ == "__main__":
    until, pause = time.monotonic() + float(sys.argv[1]), 1.0 / float(sys.argv[2])
    due = time.monotonic()
    while due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        os.waitpid(os.posix_spawn("/bin/sh", ["/bin/sh", "-c", ":"], os.environ), 0)
        # After a stall the missed ones are not made up for.
        due = max(due + pause, time.monotonic() - pause)
