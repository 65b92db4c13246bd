"""Which memory hierarchy the lab uses, on machines of every kind: by an injected root."""

from pathlib import Path

import pytest

from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.model.errors import LabError
from exhume.procfs.host import Host

V1 = "30 20 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2 = "31 20 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


@pytest.fixture
def machine(tmp_path: Path):
    host = Host(proc=tmp_path / "proc", sys=tmp_path / "sys")

    def make(mounts: str, cgroups: str = "", **files: str) -> Host:
        (host.proc / "self").mkdir(parents=True)
        (host.proc / "self/mountinfo").write_text(mounts)
        (host.proc / "cgroups").write_text(cgroups)
        for name, content in files.items():
            path = host.sys / "fs/cgroup" / name.replace("__", "/").replace("cgroup_", "cgroup.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return host

    return make


def test_v2_counts_below_the_parent(machine) -> None:
    host = machine(V2, cgroup_controllers="cpu memory", cgroup_subtree_control="cpu memory")
    hierarchy = find_memory_hierarchy(host)
    parent = host.sys / "fs/cgroup/lab"
    parent.mkdir()
    (parent / "cgroup.stat").write_text("nr_descendants 1\nnr_dying_descendants 7\n")
    assert (hierarchy.version, hierarchy.dying(parent)) == (2, 7)
    assert (hierarchy.join_file, hierarchy.reclaim_file) == ("cgroup.procs", "memory.reclaim")
    assert hierarchy.home_below(parent) == parent / "maker"
    (parent / "cgroup.stat").write_text(
        "nr_descendants 1\nnr_dying_descendants 9\nnr_subsys_memory 2\nnr_dying_subsys_memory 8\n"
    )
    assert hierarchy.settled(parent) == 8


def test_v1_counts_the_kernels_minus_the_visible(machine) -> None:
    host = machine(
        V1, "#subsys_name hierarchy num_cgroups enabled\nmemory 4 12 1\n", memory__release_agent="", memory__a__tasks=""
    )
    hierarchy = find_memory_hierarchy(host)
    root = host.sys / "fs/cgroup/memory"
    assert (hierarchy.version, hierarchy.dying(root)) == (1, 10)
    assert (hierarchy.join_file, hierarchy.reclaim_file) == ("tasks", "memory.force_empty")
    assert hierarchy.home_below(root / "a") == root / "a"


@pytest.mark.parametrize(
    ("mounts", "files", "complaint"),
    [
        ("", {}, "no hierarchy with the memory controller"),
        (V2, {"cgroup_controllers": "cpu", "cgroup_subtree_control": "cpu"}, "no hierarchy with the memory controller"),
        (V2, {"cgroup_controllers": "memory", "cgroup_subtree_control": ""}, "echo .memory >"),
        (V2, {"cgroup_controllers": "memory", "cgroup_events": ""}, "only a part"),
        (V1, {"memory__tasks": ""}, "only a part"),
        (V1, {"memory__release_agent": ""}, "no count of memory cgroups"),
    ],
)
def test_machines_where_zombies_cannot_be_counted(machine, mounts: str, files: dict[str, str], complaint: str) -> None:
    with pytest.raises(LabError, match=complaint):
        find_memory_hierarchy(machine(mounts, **files))
