"""The incident scenario: a container in a crash loop leaks memory cgroups, a kubelet walks them in the kernel on one
core, and the network card whose queue is served by that core is reset.

The container runs under a real Docker; if that is not possible, a plain process crashes instead.
"""

import os
import time
from pathlib import Path

from exhume.lab.hierarchies import MemoryHierarchy, find_memory_hierarchy
from exhume.lab.leftovers import OwnMount
from exhume.lab.mounts import mount_tmpfs
from exhume.lab.own_docker import OwnDocker, docker_missing
from exhume.lab.scenarios.memory import memory_cgroup
from exhume.lab.stage import Scenario, Stage, refuse_without_room, wait_until
from exhume.lab.zombies import way_to_spin
from exhume.procfs.host import Host

AGENT, IMAGE, KUBELET = "ecs-agent", "amazon/amazon-ecs-agent:latest", "kubelet"
ENOUGH = 4_000
IN_ONE_LIFE = 500
LEAKING_S = 150.0
NOTICED_S = 6.596
QUEUE = 5
_DRIVER = "ena 0000:00:05.0 eth0: "

# Creates cgroups below its own, leaves a page in each that outlives it, removes them, and crashes. On v2 processes may
# only be in leaves, so it moves into one first.
_SCRIPT = """
own=/memory$(busybox sed -n 's/^[0-9]*:{controller}:\\(.*\\)$/\\1/p' /proc/self/cgroup)
if [ -e $own/cgroup.subtree_control ]; then
  busybox mkdir $own/init; echo 0 > $own/init/cgroup.procs; echo +memory > $own/cgroup.subtree_control
fi
life=$(busybox date +%s%N); batch=0
while [ $batch -lt {batches} ]; do
  names=""; n=0
  while [ $n -lt 50 ]; do names="$names $own/task-$batch-$n"; n=$((n+1)); done
  busybox mkdir $names
  for each in $names; do (echo 0 > $each/{join}; echo left > /leak/$life-${{each##*/}}); done
  busybox rmdir $names
  batch=$((batch+1))
done
exit 1
"""


def prepare_incident(stage: Stage) -> None:
    """Let it leak until there are thousands of zombies."""
    refuse_without_room(2 * ENOUGH, 0, stage.directory)
    hierarchy = find_memory_hierarchy(Host())
    pages = _crash_plainly(stage, hierarchy) if docker_missing() else _crash_in_docker(stage, hierarchy)

    def enough() -> bool:
        # Each zombie leaves one page.
        made = sum(1 for _ in pages.iterdir())
        stage.progress(min(1.0, made / ENOUGH))
        return made >= ENOUGH

    wait_until(f"{ENOUGH:,} leaked cgroups", enough, LEAKING_S)


@Scenario(
    "the whole story: a crash-looping agent leaks cgroups, a kubelet walks them, the network card is reset",
    prepare_incident,
    cause="zombie-memcgs",
    on_core=True,
    memory=600 << 20,
    prepared_early=False,
)
def incident(stage: Stage) -> None:
    file, data = way_to_spin(find_memory_hierarchy(Host()), stage.cgroup)
    began = time.monotonic()
    length = max(stage.seconds, NOTICED_S + 1.0)
    # The loop of the original incident never yielded its core. If today's loop does, its priority makes up for that.
    stage.start("files.use_file", length, file, data, name=KUBELET, core=stage.core, nice=-20)
    stage.wait(max(0.0, NOTICED_S - (time.monotonic() - began)))
    _log(
        f"TX q {QUEUE} is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"
    )
    _log("napi handler hasn't been called for a long time but is scheduled")
    stage.wait(0.3)
    _log("Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g")
    stage.wait(max(0.7, stage.seconds - (time.monotonic() - began)))


def _log(text: str) -> None:
    """Write a line to the kernel log."""
    with Path("/dev/kmsg").open("wb", buffering=0) as log:
        log.write(f"<4>{_DRIVER}{text}\n".encode())


def _crash_in_docker(stage: Stage, hierarchy: MemoryHierarchy) -> Path:
    """Crash in Docker; return the directory of the pages."""
    docker = OwnDocker(stage)
    docker.start()
    docker.import_busybox(IMAGE)
    leaked = docker.room / "leaked"
    leaked.mkdir()
    controller = "[^:]*memory[^:]*" if hierarchy.version == 1 else ""
    script = _SCRIPT.format(controller=controller, join=hierarchy.join_file, batches=IN_ONE_LIFE // 50)
    docker(
        *("run", "-d", "--name", AGENT, "--network", "none", "--restart", "always", "--cgroupns", "host"),
        *("-v", f"{hierarchy.root}:/memory", "-v", f"{leaked}:/leak", IMAGE, "/bin/busybox", "sh", "-c", script),
    )
    stage.cgroup = hierarchy.root / docker.cgroup
    return leaked


def _crash_plainly(stage: Stage, hierarchy: MemoryHierarchy) -> Path:
    """Crash as a plain process; return the directory of the pages."""
    cgroup = memory_cgroup(stage)
    pages = stage.directory / "pages"
    stage.leftovers.add(OwnMount(os.fspath(pages)))
    mount_tmpfs(pages, 64 << 20, 20 * ENOUGH)
    home = hierarchy.home_below(cgroup) / hierarchy.join_file
    args = (LEAKING_S * 2, cgroup, pages, IN_ONE_LIFE, home, hierarchy.join_file)
    stage.start("processes.crash_and_leak", *args, name=AGENT)
    return pages
