"""The files about cgroups."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.procfs.cgroup import (
    Bandwidth,
    CgroupCount,
    parse_cgroup_stat,
    parse_controllers,
    parse_cpu_max,
    parse_cpu_stat,
    parse_pid_cgroup,
)


def test_controllers() -> None:
    counts = parse_controllers(
        b"#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t9\t32917\t1\ncpu\t2\t5\t0\ncut\t3\n"
    )
    assert counts.keys() == {"memory", "cpu"}
    assert (counts["memory"].hierarchy, counts["memory"].cgroups, counts["memory"].enabled) == (9, 32917, True)
    assert not counts["cpu"].enabled


def test_the_cgroups_of_a_process() -> None:
    content = b"9:memory:/a\n2:cpu,cpuacct:/b:c\n1:name=systemd:/\n0::/gone (deleted)\n"
    assert parse_pid_cgroup(content) == {
        "memory": "/a",
        "cpu": "/b:c",
        "cpuacct": "/b:c",
        "name=systemd": "/",
        "": "/gone",
    }


def test_dying_cgroups_by_controller_where_the_kernel_counts_them() -> None:
    old = b"nr_descendants 4\nnr_dying_descendants 7\n"
    assert parse_cgroup_stat(old) == {"all": CgroupCount(5, 7)}
    new = old + b"nr_subsys_memory 3\nnr_dying_subsys_memory 6\nnr_dying_subsys_cut 1\n"
    assert parse_cgroup_stat(new) == {"all": CgroupCount(5, 7), "memory": CgroupCount(3, 6)}
    assert parse_cgroup_stat(b"") == {}


def test_throttling_in_the_units_of_either_version() -> None:
    assert parse_cpu_stat(b"nr_periods 5\nnr_throttled 2\nthrottled_time 1500\n") == Bandwidth(5, 2, 1500)
    assert parse_cpu_stat(b"usage_usec 1\nnr_periods 5\nnr_throttled 2\nthrottled_usec 3\n") == Bandwidth(5, 2, 3000)
    assert parse_cpu_stat(b"nr_periods 5\n") is None


def test_limits() -> None:
    assert parse_cpu_max(b"50000 100000\n") == (50000, 100000)
    assert parse_cpu_max(b"20000\n") == (20000, None)
    assert [parse_cpu_max(content) for content in (b"max 100000\n", b"-1\n", b"")] == [None, None, None]


@given(st.binary(max_size=200))
def test_no_content_breaks_a_parser(content: bytes) -> None:
    for parse in (parse_controllers, parse_pid_cgroup, parse_cgroup_stat, parse_cpu_stat, parse_cpu_max):
        parse(content)


def test_a_stat_without_throttling() -> None:
    assert parse_cpu_stat(b"usage_usec 5\n") is None
