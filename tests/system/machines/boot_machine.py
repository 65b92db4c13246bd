"""Boot one machine of the tests to look at: `make machine ARGS="my.service"` enables that unit file there.

It says how to get in, and goes when Ctrl-C is pressed.
"""

import signal
import sys
from pathlib import Path

from tests.system.machines.machine_leftovers import remove_leftovers
from tests.system.machines.machine_tree import machine_tree
from tests.system.machines.nspawn_machine import Machine

ENDS = {signal.SIGINT, signal.SIGTERM}


def main(units: list[str]) -> None:
    remove_leftovers()
    with Machine(machine_tree()) as machine:
        for unit in map(Path, units):
            machine.write_unit(unit.name, unit.read_text(), wanted_by="multi-user.target")
        machine.boot()
        print(f"its root from here: {machine.root}")
        print(f"a shell inside:     nsenter --target {machine.leader} --all --root --wd -- bash -l")
        print("Ctrl-C ends it.", flush=True)
        # Only now: its processes would inherit it.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        signal.sigwait(ENDS)


if __name__ == "__main__":
    main(sys.argv[1:])
