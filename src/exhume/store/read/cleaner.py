"""Removes the directory that a bundle was unpacked into, once the process that opened it is gone: a program of its own,
with the standard library alone. Standard input is a pipe from that process, which the kernel closes however it ends."""

import shutil
import sys

if __name__ == "__main__":
    sys.stdin.read()
    shutil.rmtree(sys.argv[1], ignore_errors=True)
