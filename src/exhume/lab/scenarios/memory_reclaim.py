"""A program that reads more files than the memory limit of its cgroup holds: each page costs another one's eviction."""

from exhume.lab.memcg_stage import join_file, memory_cgroup
from exhume.lab.stage import Stage

SUMMARY = "a program at the memory limit of its cgroup frees a page for each one that it needs"
LIMIT = 32 << 20
FILE = 2 << 30


def play(stage: Stage) -> None:
    cgroup = memory_cgroup(stage, LIMIT)
    file = stage.directory / "data"
    with file.open("xb") as made:
        # A hole: it takes memory to read, and no disk.
        made.truncate(FILE)
    stage.start("read_pages", str(stage.seconds), str(join_file(cgroup)), str(file), core=stage.core)
    stage.wait()
