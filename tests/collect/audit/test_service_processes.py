"""Which process is whose, reported by cgroups."""

from tests.diagnose.audit.audit_scenes import but, container, unit

from exhume.collect.audit.service_use import ProcessTable, owners
from exhume.procfs.host import Host


def node(tmp_path, **cgroups) -> ProcessTable:
    """Processes p1, p2 … with the content of their cgroup files."""
    for name, content in cgroups.items():
        home = tmp_path / name[1:]
        home.mkdir()
        (home / "cgroup").write_text(content)
        (home / "comm").write_text("x\n")
    return ProcessTable.read(Host(proc=tmp_path))


def test_the_innermost_service_has_it(tmp_path):
    table = node(
        tmp_path,
        p1="0::/init.scope\n",
        p7="0::/system.slice/docker.service\n",
        p8="0::/system.slice/docker.service/box/ab\n",
        p9="0::/system.slice/docker.service-other\n",
    )
    docker, box = unit("docker.service", cgroup="/system.slice/docker.service"), container(cgroup=None)
    box = but(box, cgroup="/system.slice/docker.service/box/ab")
    assert owners(table, [box, docker]) == {7: "docker.service", 8: "docker:web"}


def test_of_several_hierarchies_the_deepest_counts(tmp_path):
    table = node(tmp_path, p7="4:memory:/a/b\n2:cpu:/\n1:name=systemd:/system.slice/a.service\n0::/\n")
    assert owners(table, [unit("a.service", cgroup="/system.slice/a.service")]) == {7: "a.service"}


def test_a_machine_inside_another_is_reported_by_its_first_process(tmp_path):
    table = node(
        tmp_path,
        p1="0::/box-9/init.scope\n",
        p7="0::/box-9/system.slice/a.service\n",
        p8="0::/system.slice/a.service\n",
    )
    assert table.prefix == "/box-9"
    assert owners(table, [unit("a.service", cgroup="/system.slice/a.service")])[7] == "a.service"


def test_a_main_process_counts_where_there_is_no_cgroup(tmp_path):
    table = node(tmp_path, p7="0::/\n")
    assert owners(table, [unit("a.service", cgroup=None, pid=7), unit("b.service", cgroup=None, pid=8)]) == {
        7: "a.service"
    }
