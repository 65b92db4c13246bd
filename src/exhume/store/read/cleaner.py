"""Remove the directory a bundle was unpacked into once the process that opened it is gone. A separate program that uses
only the standard library. Its stdin is a pipe from that process, which the kernel closes however the process ends."""

import shutil
import sys

if __name__ == "__main__":
    sys.stdin.read()
    shutil.rmtree(sys.argv[1], ignore_errors=True)
