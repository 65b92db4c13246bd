"""The services of `exhume install` in a booted nspawn container: they record and serve under all their restrictions,
come back after a hang and a reboot, and go without a trace. In the order of a node's life: each test leaves the next
one a node on which the services run."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.install.program import PROGRAM, boot_with_python, mounts_of
from tests.system.machines.machine_leftovers import remove_leftovers
from tests.system.machines.machine_tree import machine_tree
from tests.system.machines.nspawn_machine import Machine

from exhume.control.installation import CAPABILITIES, PAGE, RECORDER, UNITS

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv"),
    pytest.mark.xdist_group("services"),
]

MOST_EXPOSURE = 4.0
CAPABILITY_BITS = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_ADMIN": 12,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_NICE": 23,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
}
# Tools for accounts rewrite these, and keep what was there before in files of their own.
ACCOUNT_FILES = {f"etc/{name}{end}" for name in ("passwd", "group", "shadow", "gshadow") for end in ("", "-")}
ACCOUNT_FILES |= {"etc/.pwd.lock", "etc/subuid", "etc/subgid", "etc/subuid-", "etc/subgid-"}

# What a boot itself leaves.
OF_BOOTS = re.compile(r"var/log/wtmp|var/tmp/systemd-private-[0-9a-f]+-systemd-.*")


@pytest.fixture(scope="module")
def machine(opt: Path) -> Iterator[Machine]:
    remove_leftovers()
    rights = ["--capability=all", "--system-call-filter=perf_event_open syslog fsopen fsconfig fsmount"]
    with Machine(machine_tree(), [*mounts_of(opt), *rights]) as made:
        boot_with_python(made)
        be_like_a_node(made)
        yield made


def be_like_a_node(machine: Machine) -> None:
    """What nspawn leaves out and every node has: the kernel log, and on hosts with cgroup v1 writable controllers."""
    machine.run("sh", "-c", "test -e /dev/kmsg || mknod -m 600 /dev/kmsg c 1 11")
    for controller in ("memory", "cpu", "cpuacct", "pids", "devices"):
        machine.run("mount", "-o", "remount,bind,rw", f"/sys/fs/cgroup/{controller}", check=False)
    machine.run("systemctl", "daemon-reexec")


@pytest.fixture(scope="module")
def plain(machine: Machine) -> dict:
    """What a recorder without any restriction has in there."""
    machine.run(PROGRAM, "record", "--for", "2s", "--dir", "/run/plain")
    return json.loads(machine.run(PROGRAM, "info", "--dir", "/run/plain", "--json"))


@pytest.fixture(scope="module")
def before(machine: Machine, plain: dict) -> dict:
    return machine.digest()


@pytest.fixture(scope="module")
def installed(machine: Machine, before: dict) -> Machine:
    machine.run(PROGRAM, "install")
    return machine


def health(machine: Machine) -> dict:
    return json.loads(machine.ask(PROGRAM, "health", "--json", "--allow-losses", "--late-after", "30s").stdout)


def request(machine: Machine, *prefix: str) -> str:
    """The status line of an answer from the page; there is no HTTP client in there."""
    script = (
        "exec 3<>/dev/tcp/127.0.0.1/8420; printf 'GET / HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3; head -n1 <&3"
    )
    return machine.ask(*prefix, "bash", "-c", script).stdout.strip()


def processes(machine: Machine, unit: str) -> list[dict[str, str]]:
    """/proc/PID/status of the processes of a unit."""
    group = machine.show(unit, "ControlGroup")["ControlGroup"]
    script = (
        f"for p in $(cat /sys/fs/cgroup/systemd{group}/cgroup.procs /sys/fs/cgroup{group}/cgroup.procs 2>/dev/null)"
    )
    reported = machine.run("sh", "-c", f"{script}; do cat /proc/$p/status; done")
    found = []
    for line in reported.splitlines():
        name, _, value = line.partition(":")
        if name == "Name":
            found.append({})
        found[-1][name] = value.strip()
    return found


def test_it_is_installed_records_and_serves(installed: Machine):
    for unit in UNITS:
        known = installed.show(unit, "ActiveState", "UnitFileState")
        assert known == {"ActiveState": "active", "UnitFileState": "enabled"}
    found = health(installed)
    assert found["state"] == "healthy", found
    # The page's server may still load.
    installed.wait_until("the page answers", lambda: request(installed) == "HTTP/1.1 200 OK")
    assert request(installed, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups").startswith(
        "HTTP/1.1 403"
    )


def test_the_hardening_loses_no_source(installed: Machine, plain: dict):
    info = json.loads(installed.run(PROGRAM, "info", "--json"))
    assert info["sources_missing"] == plain["sources_missing"]
    assert (info["rate_hz"], info["event_source"]) == (plain["rate_hz"], plain["event_source"])
    assert info["nice"] == plain["nice"]
    assert info["rate_hz"] > 0, "no stacks in there, so nothing was compared"


def test_the_parser_of_symbols_stays_confined(installed: Machine):
    def confined() -> list[dict[str, str]]:
        return [each for each in processes(installed, RECORDER)[1:] if each["Uid"].split()[0] == "65534"]

    main = processes(installed, RECORDER)[0]
    assert main["Uid"].split()[0] == "0"
    assert int(main["CapEff"], 16) & (1 << 21) == 0, "CAP_SYS_ADMIN"
    # It is there once a function of a program was sampled.
    installed.wait_until("the parser runs", lambda: bool(confined()))
    assert all(int(each["CapEff"], 16) == 0 and each["Seccomp"] == "2" for each in confined())
    info = json.loads(installed.run(PROGRAM, "info", "--json"))
    assert not [kind for kind in info["losses"] if "symbols-unconfined" in kind]


def test_no_process_has_a_capability_that_is_not_listed(installed: Machine):
    """By the numbers of include/uapi/linux/capability.h. That each is needed is in the documentation of the unit."""
    assert set(CAPABILITY_BITS) == set(CAPABILITIES)
    listed = sum(1 << bit for bit in CAPABILITY_BITS.values())
    for each in processes(installed, RECORDER):
        assert not int(each["CapBnd"], 16) & ~listed, each
        assert each["NoNewPrivs"] == "1"
    assert int(processes(installed, RECORDER)[0]["CapEff"], 16) == listed, "what is listed is what it has"


@pytest.mark.parametrize("unit", UNITS)
def test_the_exposure_is_low(installed: Machine, unit: str):
    reported = installed.run("systemd-analyze", "security", "--no-pager", unit)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", reported)
    assert float(exposure) < MOST_EXPOSURE, reported


def test_limits_are_in_force(installed: Machine):
    """As the kernel has them, where it shows them in there; and as systemd has them."""
    for unit, memory, quota, weight in ((RECORDER, 600 << 20, 50, 10000), (PAGE, 1 << 30, 100, 100)):
        known = installed.show(unit, "MemoryMax", "CPUQuotaPerSecUSec", "TasksMax", "ControlGroup")
        assert int(known["MemoryMax"]) == memory
        assert known["TasksMax"] == "64"
        group = known["ControlGroup"]
        v1 = (f"memory{group}/memory.limit_in_bytes", f"cpu{group}/cpu.cfs_quota_us", f"cpu{group}/cpu.shares")
        v2 = (f"{group}/memory.max", f"{group}/cpu.max", f"{group}/cpu.weight")
        limits = [
            [installed.ask("cat", f"/sys/fs/cgroup/{name.lstrip('/')}").stdout.split() for name in names]
            for names in (v1, v2)
        ]
        ((limit, *_), (share, *_), (shares, *_)) = next(each for each in limits if all(each))
        assert (int(limit), int(share)) == (memory, quota * 1000)
        # A weight of 100 is 1024 shares of v1.
        assert int(shares) in (weight, weight * 1024 // 100)


def test_the_page_runs_as_its_user(installed: Machine):
    (line,) = [each for each in installed.run("cat", "/etc/passwd").splitlines() if each.startswith("exhume:")]
    user = line.split(":")[2]
    found = processes(installed, PAGE)
    assert found
    assert {each["Uid"].split()[0] for each in found} == {user}
    assert {int(each["CapBnd"], 16) for each in found} == {0}


def test_it_logs_to_the_journal(installed: Machine):
    installed.write_journal()
    assert "recording into /var/lib/exhume" in installed.run("journalctl", "--no-pager", "--unit", RECORDER)


def test_installing_again_changes_nothing(installed: Machine):
    pids = [installed.show(unit, "MainPID") for unit in UNITS]
    digest = {path: entry for path, entry in installed.digest().items() if not path.startswith("var/lib/exhume/")}
    installed.run(PROGRAM, "install")
    assert [installed.show(unit, "MainPID") for unit in UNITS] == pids
    now = {path: entry for path, entry in installed.digest().items() if not path.startswith("var/lib/exhume/")}
    assert now == digest


def test_the_watchdog_restarts_a_recorder_that_hangs(installed: Machine):
    drop_in = installed.write_unit(f"{RECORDER}.d/quick.conf", "[Service]\nWatchdogSec=4\nRestartSec=1\n")
    installed.reload()
    installed.run("systemctl", "restart", RECORDER)
    first = installed.show(RECORDER, "MainPID")["MainPID"]
    installed.run("sh", "-c", f"kill -STOP {first}")
    installed.wait_until(
        "another recorder runs",
        lambda: installed.state(RECORDER) == "active" and installed.show(RECORDER, "MainPID")["MainPID"] != first,
    )
    assert int(installed.show(RECORDER, "NRestarts")["NRestarts"]) >= 1
    installed.write_journal()
    assert "watchdog" in installed.run("journalctl", "--no-pager", "--unit", RECORDER).lower()
    # What the killed one left is sealed, and nothing of it is damaged.
    info = json.loads(installed.run(PROGRAM, "info", "--json"))
    assert info["recorded_seconds"] >= 2 and info["skipped"] == []
    shutil.rmtree(drop_in.parent)
    installed.reload()
    installed.run("systemctl", "restart", RECORDER)


def test_it_survives_a_reboot(installed: Machine):
    recorded = json.loads(installed.run(PROGRAM, "info", "--json"))["recorded_seconds"]
    installed.reboot()
    for unit in UNITS:
        assert installed.state(unit) == "active"
    installed.wait_until("it records", lambda: health(installed)["state"] == "healthy")
    deadline = time.monotonic() + 60
    while json.loads(installed.run(PROGRAM, "info", "--json"))["recorded_seconds"] <= recorded:
        assert time.monotonic() < deadline
    installed.wait_until("the page answers", lambda: request(installed) == "HTTP/1.1 200 OK")


def test_it_is_uninstalled_without_a_trace(installed: Machine, before: dict):
    said = installed.run(PROGRAM, "uninstall")
    assert RECORDER in said
    assert (installed.disk / "var/lib/exhume").is_dir(), "recordings stay"
    assert installed.ask(PROGRAM, "health").returncode == 3
    installed.run(PROGRAM, "uninstall", "--purge")
    assert installed.ask(PROGRAM, "uninstall").returncode == 3
    for unit in UNITS:
        assert installed.show(unit, "LoadState")["LoadState"] == "not-found"
    after = installed.digest()
    differs = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    differs = {path for path in differs if not OF_BOOTS.fullmatch(path)}
    assert differs - ACCOUNT_FILES == set()
    for name in ("passwd", "group", "shadow", "gshadow"):
        lines = [(root / "etc" / name).read_text().splitlines() for root in (installed.disk, installed.tree)]
        assert lines[0] == lines[1]
