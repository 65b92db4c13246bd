"""Makes a network namespace and stays in it. Words: seconds."""

import ctypes
import os
import sys
import time

CLONE_NEWNET = 0x40000000

if __name__ == "__main__":
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    time.sleep(float(sys.argv[1]))
