"""The counters of a node's state, read from a fake tree and from this machine."""

from pathlib import Path

import pytest

from exhume.collect.vitals import oldest_processes, read_vitals, restarted_between
from exhume.model.clock import NANOS
from exhume.model.finding import QuotaCount
from exhume.procfs.host import Host


def written(root: Path, files: dict[str, str]) -> Host:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Host(root / "proc", root / "sys", root / "dev")


def test_everything_that_is_there_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.collect.vitals.WALK_S", 60.0)
    mount = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    host = written(
        tmp_path,
        {
            "proc/uptime": "86400.5 900.1\n",
            "proc/meminfo": "MemTotal:       1024 kB\nMemFree: 1 kB\n",
            "proc/sys/fs/dentry-state": "900 800 45 0 700 0\n",
            "proc/1/mountinfo": mount * 3,
            "proc/self/mountinfo": mount,
            "proc/sys/net/netfilter/nf_conntrack_count": "12\n",
            "proc/sys/net/netfilter/nf_conntrack_max": "100\n",
            "proc/stat": "cpu 50 10 20 800 10 5 5 100 40 0\ncpu0 1 2 3\n",
            "proc/loadavg": "9.00 8.00 7.00 3/900 77\n",
            "sys/devices/system/cpu/online": "0-3\n",
            "proc/vmstat": "pgfault 7\noom_kill 4\n",
            "proc/pressure/cpu": "some avg10=1.00 avg60=2.00 avg300=3.00 total=9\n",
            "proc/pressure/memory": "some avg10=0.00 avg60=50.00 avg300=12.50 total=9\nfull avg60=1 avg300=2\n",
            "sys/class/net/eth0/device/vendor": "0x1d0f\n",
            "sys/class/net/eth0/queues/tx-0/tx_timeout": "2\n",
            "sys/class/net/eth0/queues/tx-1/tx_timeout": "3\n",
            "sys/class/net/eth0/queues/rx-0/rps_cpus": "0\n",
            "sys/class/net/veth1/queues/tx-0/tx_timeout": "99\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/a/cpu.stat": "usage_usec 5\nnr_periods 40\nnr_throttled 30\nthrottled_usec 9\n",
            "sys/fs/cgroup/a/b/cpu.stat": "usage_usec 5\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
        },
    )
    found = read_vitals(host)
    assert (found.uptime_s, found.memory_bytes, found.dentries_negative, found.mounts) == (86400.5, 1 << 20, 700, 3)
    assert (found.conntrack, found.conntrack_max, found.oom_kills, found.steal) == (12, 100, 4, 0.1)
    assert found.pressure == {"cpu": (0.02, 0.03), "memory": (0.5, 0.125)}
    # The counters of the written file stand still.
    assert (found.load, found.niced) == (2.0, None)
    assert found.tx_timeouts == {"eth0": 5}
    assert found.quotas == [QuotaCount("/a", 40, 30)]
    # io was not there; units are asked for where the test runs, which may be without systemd.
    assert found.unseen.keys() - {"failed_units"} == {"pressure"}


def test_an_empty_tree_names_what_is_missing(tmp_path: Path) -> None:
    found = read_vitals(Host(tmp_path / "proc", tmp_path / "sys", tmp_path / "dev"))
    assert (found.mounts, found.steal, found.quotas, found.tx_timeouts, found.pressure) == (None, None, None, None, {})
    assert found.uptime_s > 0
    assert {"mounts", "steal", "quotas", "tx_timeouts", "pressure", "conntrack"} <= found.unseen.keys()


def test_this_machine_can_be_read() -> None:
    found = read_vitals(Host())
    assert found.mounts and found.memory_bytes and found.steal is not None
    assert found.load is not None and found.load >= 0 and 0 <= (found.niced or 0) <= 1


def process(pid: int, start: int, cgroup: str) -> dict[str, str]:
    fields = ["S", "1", *["0"] * 17, str(start), *["0"] * 20]
    return {f"proc/{pid}/stat": f"{pid} (agent) {' '.join(fields)}\n", f"proc/{pid}/cgroup": f"0::{cgroup}\n"}


def test_restarted_services_are_seen(tmp_path: Path) -> None:
    service, other = "/system.slice/ecs.service", "/system.slice/kubelet.service"
    container = f"/docker/{'a' * 64}"
    old = written(
        tmp_path / "before",
        process(10, 500, service)
        | process(11, 100, other)
        | process(12, 50, "/user.slice")
        | process(13, 70, container),
    )
    new = written(
        tmp_path / "after",
        process(20, 900, service) | process(11, 100, other) | process(21, 950, other) | process(22, 990, container),
    )
    before, after = oldest_processes(old), oldest_processes(new)
    assert before.keys() == {"ecs.service", "kubelet.service", "container aaaaaaaaaaaa"}
    assert before["ecs.service"] == ("agent", 500 * NANOS // 100)
    assert [each.name for each in restarted_between(before, after)] == ["container aaaaaaaaaaaa", "ecs.service"]
