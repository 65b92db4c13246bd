"""Starts processes that end at once, one after the other. Words: seconds, fork | PROGRAM to run."""

import os
import sys
import time

if __name__ == "__main__":
    until, program = time.monotonic() + float(sys.argv[1]), sys.argv[2]
    while time.monotonic() < until:
        for _ in range(50):
            if program == "fork":
                child = os.fork()
                if child == 0:
                    os._exit(0)
            else:
                child = os.posix_spawn(program, [program], {})
            os.waitpid(child, 0)
