"""Without some of its privileges or the node's files the recorder records what it can, and says in one line each what
is missing and what would bring it back."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.parts import missing
from tests.system.faults.recorder_process import PROGRAM, RecorderProcess, anchor_count, clean_words, rows, share_sums

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
    assert set(more) == {"stacks", "cgroup-events", "kernel-log"}
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
    more = more_than(usual, record_under(start, tmp_path / "recording", hiding("/dev")))
    assert set(more) == {"kernel-log"}
    assert "make /dev/kmsg visible" in more["kernel-log"]


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
