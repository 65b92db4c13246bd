"""Without some of its privileges or the node's files the recorder records what it can, and says in one line each what
is missing and what would bring it back."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.parts import missing
from tests.system.faults.recorder_process import (
    PROGRAM,
    RecorderProcess,
    anchor_count,
    clean_words,
    monotonic,
    rows,
    share_sums,
)

from exhume.cli import exit_codes
from exhume.collect.cgroup.layout import hierarchies
from exhume.collect.perf.tasks import FOREIGN
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording

pytestmark = pytest.mark.root

Start = Callable[..., RecorderProcess]

NOBODY = ["--reuid=65534", "--regid=65534", "--clear-groups"]


def without(*capabilities: str) -> list[str]:
    """Root without these capabilities (`all`: without any)."""
    return ["setpriv", "--inh-caps=-all", "--bounding-set=" + ",".join(f"-{name}" for name in capabilities)]


def hiding(path: str) -> list[str]:
    """With nothing at a path, in a mount namespace that ends with the recorder."""
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {path} && exec "$@"', "sh"]


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    path = Path("/proc/sys") / name.replace(".", "/")
    before = path.read_text()
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(before)


def record_under(start: Start, directory: Path, under: list[str]) -> dict[str, list[str]]:
    """Record a little; returns what is missing by source. Whatever it was, the rest is recorded."""
    recorder = start(directory, under=under).ticks(1)
    assert recorder.stop() == 0, recorder.err
    clean_words(recorder)
    assert rows(directory, "cpu", "cpu")
    assert rows(directory, "node", "mem_total")
    assert all(990 <= total <= 1010 for total in share_sums(directory))
    stored = Recording.open(directory).facts.sources_missing
    assert [str(missing) for missing in stored] == recorder.missing
    return missing_by_source(recorder)


def missing_by_source(recorder: RecorderProcess) -> dict[str, list[str]]:
    missing: dict[str, list[str]] = {}
    for line in recorder.missing:
        source, _, rest = line.partition(": ")
        assert ";" in rest, "each line has a reason and a remedy"
        missing.setdefault(source, []).append(rest)
    return missing


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What this kernel lacks for everybody."""
    directory = tmp_path_factory.mktemp("usual")
    recorder = RecorderProcess(directory / "recording", directory / "said")
    try:
        return missing_by_source(recorder.ticks(1))
    finally:
        recorder.kill()


def more_than(usual: dict[str, list[str]], missing: dict[str, list[str]]) -> dict[str, str]:
    """What is missing on top; one line for a source."""
    more = {source: [line for line in lines if line not in usual.get(source, [])] for source, lines in missing.items()}
    assert all(len(lines) <= 1 for lines in more.values())
    return {source: lines[0] for source, lines in more.items() if lines}


def test_without_any_capability(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    with setting("kernel.dmesg_restrict", "1"):
        more = more_than(usual, record_under(start, tmp_path / "recording", without("all")))
    # Kernels before 6.6 also refuse exit codes then.
    assert set(more) - {"exit-codes"} == {"stacks", "cgroup-events", "kernel-log"}
    assert "CAP_PERFMON" in more["stacks"]
    assert "CAP_PERFMON" in more["cgroup-events"]
    assert "CAP_SYSLOG" in more["kernel-log"]
    assert Recording.open(tmp_path / "recording").facts.event_source == "none"


def test_without_perfmon_where_the_kernel_is_paranoid(
    tmp_path: Path, start: Start, usual: dict[str, list[str]]
) -> None:
    with setting("kernel.perf_event_paranoid", "4"):
        refused = more_than(usual, record_under(start, tmp_path / "refused", without("perfmon", "sys_admin")))
        allowed = more_than(usual, record_under(start, tmp_path / "allowed", without("sys_admin")))
    assert "kernel.perf_event_paranoid is 4" in refused["stacks"]
    assert "CAP_PERFMON" in refused["stacks"]
    assert set(refused) == {"stacks", "cgroup-events"}
    assert "stacks" not in allowed, "the capability is enough, however paranoid the kernel is"


def test_perfmon_alone_brings_the_stacks(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    under = ["setpriv", "--inh-caps=-all", "--bounding-set=-all,+perfmon"]
    more = more_than(usual, record_under(start, tmp_path / "recording", under))
    assert "stacks" not in more
    assert "CAP_SYSLOG" in more["kernel symbols"]
    assert "CAP_SYS_PTRACE" in more["user symbols"]
    sampled = Recording.open(tmp_path / "recording").read("sampling").to_pylist()
    assert any(row["busy"] + row["idle"] > 0 for row in sampled)


def test_no_tracefs_and_no_right_to_mount_one(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    under = [*hiding("/sys/kernel/debug"), *without("sys_admin")]
    tracing = Path("/sys/kernel/tracing")
    if (tracing / "events").exists():
        under = [*hiding(str(tracing)), *under]
    more = more_than(usual, record_under(start, tmp_path / "recording", under))
    assert set(more) == {"cgroup-events"}
    assert "mount -t tracefs tracefs /sys/kernel/tracing" in more["cgroup-events"]


def test_no_kernel_log(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    under = [*hiding("/dev"), *without("syslog", "sys_admin")]
    with setting("kernel.dmesg_restrict", "1"):
        more = more_than(usual, record_under(start, tmp_path / "recording", under))
    assert set(more) >= {"kernel-log"}
    assert "make /dev/kmsg visible" in more["kernel-log"]


def test_no_kmsg_and_the_right_to_call_syslog(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    directory, mark = tmp_path / "recording", f"exhume test {os.getpid()} {monotonic()}"
    recorder = start(directory, under=hiding("/dev")).ticks(1)
    Path("/dev/kmsg").write_text(f"<6>{mark}\n")
    recorder.ticks(2)
    assert recorder.stop() == 0, recorder.err
    assert set(more_than(usual, missing_by_source(recorder))) == {"kernel-log-numbers"}
    lines = [row for row in rows(directory, "events", "text", "sequence") if row["text"] == mark]
    assert [row["sequence"] for row in lines] == [None]


def test_in_a_pid_namespace_of_its_own_there_are_no_wrong_names(
    tmp_path: Path, start: Start, usual: dict[str, list[str]], load: Callable[..., Any]
) -> None:
    load("sh", "-c", "while :; do /bin/true; done", nice=5)
    under = ["unshare", "--pid", "--fork", "--kill-child=SIGTERM", "--mount-proc"]
    recorder = start(tmp_path / "recording", "--for", "4s", under=under)
    assert recorder.wait() == 0, recorder.err
    more = more_than(usual, missing_by_source(recorder))
    assert next(iter(missing_by_source(recorder))) == "process-names"
    assert "hostPID" in more["process-names"] and "hostPID" in more["exit-codes"] and "hostPID" in more["threads"]
    samples = Recording.open(tmp_path / "recording").read("samples", None, ["pid", "comm"]).to_pylist()
    foreign = {row["comm"] for row in samples if row["pid"] == 0}
    assert foreign == {FOREIGN}
    # Its own processes keep theirs.
    assert any(row["pid"] == 1 and row["comm"] == "exhume" for row in samples)
    assert not {row["comm"] for row in samples} & {"sh", "true"}
    described = Recording.open(tmp_path / "recording").read("processes", None, ["pid", "comm"]).to_pylist()
    assert all(row["pid"] > 0 for row in described)


def test_in_a_network_namespace_of_its_own_exit_codes_are_missing(
    tmp_path: Path, start: Start, usual: dict[str, list[str]]
) -> None:
    more = more_than(usual, record_under(start, tmp_path / "recording", ["unshare", "--net"]))
    assert set(more) == {"exit-codes"}
    assert "hostNetwork" in more["exit-codes"]


def test_a_part_of_the_cgroups_in_sight(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    own = next((h for h in hierarchies(Host()) if "cpu" in h.controllers), None)
    if own is None:
        missing("a hierarchy with the cpu controller")
    child = own.path / f"exhume-part-{os.getpid()}"
    child.mkdir()
    try:
        show = f'mount --bind {child} /mnt && umount -R -l /sys/fs/cgroup && exec "$@"'
        more = more_than(
            usual, record_under(start, tmp_path / "recording", ["unshare", "--mount", "sh", "-c", show, "sh"])
        )
    finally:
        child.rmdir()
    assert "shows only a part" in more["throttling"] and "hostPath" in more["throttling"]


def test_pods_without_their_logs(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    own = next((h for h in hierarchies(Host()) if "cpu" in h.controllers), None)
    if own is None or (own.path / "kubepods").exists():
        missing("a hierarchy with the cpu controller, and no kubelet")
    under = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /var/log && exec "$@"', "sh"]
    pods = own.path / "kubepods"
    pods.mkdir()
    try:
        more = more_than(usual, record_under(start, tmp_path / "recording", under))
    finally:
        pods.rmdir()
    assert set(more) == {"pod-names"}
    assert "/var/log" in more["pod-names"]


def test_the_name_of_the_node_can_be_set(tmp_path: Path, start: Start) -> None:
    under = ["env", "EXHUME_NODE_NAME=node-1", "EXHUME_NODE_LABELS=pool=batch,zone=eu-1a"]
    recorder = start(tmp_path / "recording", under=under).ticks(1)
    assert recorder.stop() == 0, recorder.err
    facts = Recording.open(tmp_path / "recording").facts
    assert (facts.node, facts.labels) == ("node-1", {"pool": "batch", "zone": "eu-1a"})


def test_no_pressure_stall_information(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    more = more_than(usual, record_under(start, tmp_path / "recording", hiding("/proc/pressure")))
    if not Path("/proc/pressure/cpu").exists():
        assert any("psi=1" in line for line in usual["node"])
        return
    assert set(more) == {"node"}
    assert "psi=1" in more["node"]


def test_no_cgroups_in_sight(tmp_path: Path, start: Start, usual: dict[str, list[str]]) -> None:
    under = ["unshare", "--mount", "sh", "-c", 'umount -R -l /sys/fs/cgroup && exec "$@"', "sh"]
    more = more_than(usual, record_under(start, tmp_path / "recording", under))
    assert set(more) == {"cgroups", "throttling"}
    assert all("mount cgroup2 at /sys/fs/cgroup" in line for line in more.values())


def test_an_ordinary_user(open_directory: Path, start: Start, usual: dict[str, list[str]]) -> None:
    under = [*without("all"), *NOBODY]
    if subprocess.run([*under, PROGRAM, "--version"], capture_output=True, check=False).returncode != 0:
        missing("an interpreter that ordinary users may run")
    directory = open_directory / "recording"
    with setting("kernel.dmesg_restrict", "1"):
        more = more_than(usual, record_under(start, directory, under))
    assert {"stacks", "cgroup-events", "kernel-log"} <= set(more)
    assert "CAP_PERFMON" in more["stacks"]
    assert "CAP_SYSLOG" in more["kernel-log"]
    assert anchor_count(directory) >= 1


def test_an_ordinary_user_with_the_capabilities_that_are_asked_for(
    open_directory: Path, start: Start, usual: dict[str, list[str]]
) -> None:
    wanted = "+perfmon,+syslog,+sys_ptrace"
    under = ["setpriv", f"--inh-caps={wanted}", f"--ambient-caps={wanted}", *NOBODY]
    if subprocess.run([*under, PROGRAM, "--version"], capture_output=True, check=False).returncode != 0:
        missing("an interpreter that ordinary users may run")
    more = more_than(usual, record_under(start, open_directory / "recording", under))
    assert {"stacks", "kernel-log", "kernel symbols", "user symbols"}.isdisjoint(more)


def test_too_few_open_files_are_refused_in_a_sentence(tmp_path: Path, start: Start) -> None:
    recorder = start(tmp_path / "recording", under=["sh", "-c", 'ulimit -n 40; exec "$@"', "sh"])
    assert recorder.wait() == exit_codes.ERROR
    assert "at most 40 open files" in recorder.err and "ulimit -n" in recorder.err
    assert "Traceback" not in recorder.err
