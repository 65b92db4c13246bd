"""Looks up names that don't exist, without a pause. Words: directory, seconds, names to be remembered at most."""

import contextlib
import os
import random
import sys
import time
from pathlib import Path

_ROUND = 2_000

if __name__ == "__main__":
    base, until, most = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2]), int(sys.argv[3])
    turn = 0
    while time.monotonic() < until:
        directory = base / str(turn)
        directory.mkdir()
        probed = 0
        while probed < most and time.monotonic() < until:
            stem = f"{directory}/{random.getrandbits(48):x}"
            for number in range(_ROUND):
                with contextlib.suppress(FileNotFoundError):
                    os.stat(f"{stem}{number}")  # noqa: PTH116 (a Path takes longer than the lookup)
            probed += _ROUND
        # The kernel forgets the names that a directory lacks when the directory goes.
        directory.rmdir()
        turn += 1
