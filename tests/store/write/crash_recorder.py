"""A recorder to be killed. Reads `<directory> <run>` lines; for each it forks a recorder that runs until it is killed,
and answers with its pid. The recorder says the number of every tick that it has committed.

Forked from a process that has imported everything already: a start costs nothing, so that it can be killed often.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from tests.store.store_rows import MONO, cpu_rows, recorder, sample_rows, tick_at

TICKS_A_RUN = 100_000
SEGMENT_S = 4
# Enough that a kill has a fair chance to fall into a write.
SAMPLES = 5_000


def record(directory: Path, run: int) -> None:
    writer = recorder(directory, segment_s=SEGMENT_S)
    begins = True
    for index in range(run * TICKS_A_RUN, (run + 1) * TICKS_A_RUN):
        tick = tick_at(index, start=MONO)
        if begins:
            writer.append("frames", {"frame": [7], "kind": ["kernel"], "module": ["[kernel]"], "name": ["spin"]})
            writer.append("stacks", {"stack": [1], "frames": [[7]]})
        writer.append("cpu", cpu_rows(tick))
        columns = sample_rows(tick, [(0, 1, "a", 1)])
        writer.append("samples", {name: np.repeat(values, SAMPLES) for name, values in columns.items()})
        begins = writer.commit(tick)
        os.write(1, b"%d\n" % index)
        time.sleep(0.004)


def main() -> None:
    for line in sys.stdin:
        directory, run = line.split()
        pid = os.fork()
        if pid == 0:
            record(Path(directory), int(run))
            os._exit(0)
        os.write(1, b"pid %d\n" % pid)
        os.waitpid(pid, 0)
        os.write(1, b"dead\n")


if __name__ == "__main__":
    main()
