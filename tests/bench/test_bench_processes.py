"""CPU time of a measured process: with its children, those that run and those that ended."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.processes import Watched

ENDS = "import time\nwhile time.process_time() < 0.3: pass"
STAYS = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
child = subprocess.Popen([sys.executable, "-c", sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(flush=True)
input()
child.communicate(b"\\n")
"""


@pytest.mark.slow
def test_children_count_while_they_run_and_when_they_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, ENDS, STAYS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watched = Watched("parent", process, tmp_path / "log")
        assert watched.reaped() >= 0.29
        assert watched.cpu() >= watched.reaped() + 0.39
        process.communicate(b"\n")
    assert process.returncode == 0
