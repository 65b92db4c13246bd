"""Memory scenarios: compaction, reclaim at a limit, OOM kills, page faults."""

from exhume.lab.memcg_stage import join_file, memory_cgroup
from exhume.lab.stage import Scenario, Stage

_MIB = 256


def compaction_thp(stage: Stage) -> None:
    stage.start("memory.compact", str(stage.seconds), str(_MIB), core=stage.core)
    stage.wait()


RECLAIM_LIMIT = 32 << 20
FILE = 2 << 30


def memory_reclaim(stage: Stage) -> None:
    cgroup = memory_cgroup(stage, RECLAIM_LIMIT)
    file = stage.directory / "data"
    with file.open("xb") as made:
        # A hole: it takes memory to read, and no disk.
        made.truncate(FILE)
    stage.start("memory.map_pages", str(stage.seconds), str(join_file(cgroup)), str(file), core=stage.core)
    stage.wait()


OOM_LIMIT = 48 << 20
MOST_KILLS = 40


def oom_thrash(stage: Stage) -> None:
    cgroup = memory_cgroup(stage, OOM_LIMIT)
    pause = stage.rng.uniform(0.2, 0.8)
    args = (str(stage.seconds), str(join_file(cgroup)), str(2 * OOM_LIMIT), f"{pause:.2f}", str(MOST_KILLS))
    stage.start("memory.exceed_limit", *args, core=stage.core)
    stage.wait()


def page_fault_storm(stage: Stage) -> None:
    stage.start("memory.page_faults", str(stage.seconds), str(stage.rng.choice((32, 64, 128, 256))), core=stage.core)
    stage.wait()


SCENARIOS = (
    Scenario(
        "page-fault-storm",
        "page-fault-storm",
        "a program maps, touches and gives back the same memory over and over on one core",
        page_fault_storm,
        on_core=True,
        memory=256 << 20,
    ),
    Scenario(
        "compaction-thp",
        "compaction-thp",
        "the kernel is made to compact memory that is full of holes, over and over on one core",
        compaction_thp,
        on_core=True,
        memory=256 << 20,
    ),
    Scenario(
        "memory-reclaim",
        "memory-reclaim",
        "a program at the memory limit of its cgroup frees a page for each one that it needs",
        memory_reclaim,
        on_core=True,
    ),
    Scenario(
        "oom-thrash",
        "oom-thrash",
        "a program needs more than the memory limit of its cgroup: killed, started again, killed again",
        oom_thrash,
        memory=64 << 20,
    ),
)
