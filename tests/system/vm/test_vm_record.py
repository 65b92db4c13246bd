"""The recorder on kernels with cgroup v1 and v2: it runs, and cgroup events come in with who made them."""

import json

import pytest
from tests.system.vm.vm_disks import PYTHON
from tests.system.vm.vm_machine import Machine

pytestmark = [pytest.mark.vm, pytest.mark.timeout(3600)]
NAMES = ("exhume-vm-first", "exhume-vm-second")
# Makes and removes two cgroups while the recorder runs. Seconds mean little on a machine that is emulated: it waits for
# ticks, each of which makes a file longer.
RECORD = """
ticks() {{
    left=$1 length=0
    while [ $left -gt 0 ]; do
        sleep 0.2
        now=$(cat /var/recording/live/*/anchors.arrows 2>/dev/null | wc -c)
        [ $now -eq $length ] || left=$((left - 1))
        length=$now
        kill -0 $recorder
    done
}}
{python} -m exhume.cli.main record --dir /var/recording & recorder=$!
ticks 4
for name in {names}; do mkdir {root}/$name; rmdir {root}/$name; done
ticks 8
kill $recorder
wait $recorder
"""
READ = """
import json
from pathlib import Path
from exhume.store.read.recording import Recording
rows = Recording.open(Path("/var/recording")).read("cgroup_events").to_pylist()
print(json.dumps([[row["path"], row["op"], row["comm"], row["level"]] for row in rows]))
"""


@pytest.fixture(scope="module")
def recorded(machine: Machine):
    machine.shell(RECORD.format(python=PYTHON, names=" ".join(NAMES), root=machine.kernel.memory_root))
    yield machine
    machine.shell("rm -r /var/recording")


def test_it_recorded_and_missed_no_source_that_is_there(recorded: Machine) -> None:
    info = recorded.exhume_json("info", "--dir", "/var/recording")
    assert info["recorded_seconds"] >= 4
    assert info["samples"] > 0
    assert (info["cores"], info["sealed"]) == (2, True)
    # What boots there is no systemd.
    assert [missing["source"] for missing in info["sources_missing"]] == ["systemd"]
    assert info["kernel"] == recorded.release


def test_the_life_of_a_cgroup_is_recorded(recorded: Machine) -> None:
    rows = json.loads(recorded.run(str(PYTHON), "-c", READ).out)
    for name in NAMES:
        life = [(kind, comm) for path, kind, comm, level in rows if path == f"/{name}" and level == 1]
        assert [kind for kind, _ in life] == ["mkdir", "rmdir", "release"]
        # Too brief to be sampled, and named.
        assert [comm for kind, comm in life if kind != "release"] == ["mkdir", "rmdir"]
