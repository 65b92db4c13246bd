"""What is read from perf.data is what perf script prints, sample by sample."""

import re
import shutil
import struct
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.interop.importers.made_up import imported
from tests.parts import missing

from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import FileSummary, NoWallTime, ReadOptions, SampleBatch, StackBook, Unreadable
from exhume.interop.importers.perf_data.reader import read_perf_data
from exhume.interop.importers.spool import Intake, Spool

# alone: perf records the whole host, and its names of what many short processes did depend on the order of its buffers.
pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.needs("perf")]


class Taken(Spool):
    """A spool that keeps samples as they were handed over."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"), 60)
        self.samples: list[tuple[Any, ...]] = []
        self.forks = 0

    def add_samples(self, batch: SampleBatch, book: StackBook, comms: list[str]) -> None:
        for at in range(len(batch)):
            head = [int(getattr(batch, name)[at]) for name in ("time", "cpu", "pid", "tid")]
            frames = tuple(reversed(book.stacks[batch.stack[at]]))
            self.samples.append((*head, comms[batch.comm[at]], frames, int(batch.weight_us[at])))

    def finish(self, book: StackBook, comms: list[str]) -> None:
        """Nothing is written."""

    def add_forks(self, times: Any) -> None:
        self.forks += len(times)


def taken(path: Path, cache: Path, **options: Any) -> tuple[Taken, Intake]:
    spool = Taken()
    intake = Intake(spool, FileSummary(str(path)))
    read_perf_data(InputFile(path), intake, ReadOptions(cache=cache, **{"offset": 0, **options}))
    return spool, intake


@cache
def symbols_of(file: str) -> dict[str, set[str]]:
    """Where a file has each of its symbols: aliases of one function are at one place."""
    found: dict[str, set[str]] = {}
    notes = subprocess.run(["readelf", "-n", file], capture_output=True, text=True, check=False).stdout
    build_id = re.search(r"Build ID: (\w\w)(\w+)", notes)
    debug = f"/usr/lib/debug/.build-id/{build_id[1]}/{build_id[2]}.debug" if build_id else file
    for command in (["nm", file], ["nm", "-D", file], ["nm", debug]):
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            found.setdefault(line.split()[-1].split("@")[0], set()).add(line.split()[0])
    return found


def base(name: str) -> str:
    """The identifier of a function of C++: perf's library writes neither parameters nor return types."""
    plain = name.replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", plain)[0].split("::")[-1] if re.search(r"::|<|\(", name) else name


def same_name(expected: tuple[int, str, int, str], found: str, *, is_leaf: bool) -> bool:
    _, name, offset, file = expected
    if name == "[unknown]":
        # Functions without a symbol have the place of their beginning, and those of Go their names.
        return True
    # The version of a library's symbol, and the calling convention of Go's, are no part of a name.
    plain = name.split("@")[0].removesuffix(".abi0")
    same = base(plain) in found if re.search(r"::|<|\(", found) else plain == found
    if same or name.endswith("@plt"):
        return True
    if file == "[vdso]" and found.startswith("[vdso]+0x"):
        # It is no file: its names are in perf's cache alone.
        return True
    if not is_leaf and offset == 0:
        # perf names the function behind a call that does not return; the caller is the one before.
        return True
    return bool(symbols_of(file).get(plain, set()) & symbols_of(file).get(found, set()))


# Of the load's own programs. What else runs on the host has files that are gone, or names of many kinds.
OWN_COMMS = {"two words 7", "ls"}


FLAGS = {
    "plain": ("-a", "-g", "-F", "997"),
    # The others without copies of every program in a cache.
    "compressed": ("-a", "-g", "-F", "997", "-z", "-N"),
    "pipe": ("-", "-a", "--call-graph", "fp", "-F", "997", "-N"),
    "several-events": ("-a", "-g", "-e", "cpu-clock,context-switches", "-F", "997", "-N"),
    "no-stacks": ("-a", "-F", "997", "-N"),
    "build-ids-in-maps": ("-a", "-g", "-F", "997", "--buildid-mmap", "-N"),
}


# Of the whole host, as most record it.
SHORT = ("short.data", "-a", "-g", "-N", "-F", "997")


@pytest.mark.parametrize("name", FLAGS)
def test_equals_perf_script_sample_by_sample(perf, name):
    path = perf.record(f"{name}.data", *FLAGS[name])
    expected = perf.expected(path, "cpu-clock")
    spool, intake = taken(path, perf.cache)
    assert not list(intake.left_out)
    heads = [(each.time, each.cpu, each.pid, each.tid, each.comm) for each in expected]
    assert [sample[:5] for sample in spool.samples] == heads
    assert len(heads) > 500
    different: Counter[tuple[str, str]] = Counter()
    named = 0
    for one, sample in zip(expected, spool.samples, strict=True):
        if not one.frames or one.comm not in OWN_COMMS:
            continue
        # An address of zero is where a frame pointer led astray: no frame.
        frames = [frame for frame in one.frames if frame[0]]
        assert len(frames) == len(sample[5]) or not frames
        for place, (frame, found) in enumerate(zip(frames, sample[5], strict=False)):
            named += frame[1] != "[unknown]"
            if not same_name(frame, found.name, is_leaf=place == 0):
                different[frame[1], found.name] += 1
    assert not different
    assert named > 1000


@pytest.mark.parametrize("flags", [(), ("-z",)])
def test_directories_of_threads_are_read_as_one(perf, tmp_path, flags):
    path = perf.record("threads", "-a", "-g", "-F", "997", "-N", "--threads", *flags)
    if not path.is_dir():
        missing("a perf with record --threads")
    expected = perf.expected(path, "cpu-clock")
    spool, intake = taken(path / "data", perf.cache)
    assert not list(intake.left_out)
    assert sorted(sample[:5] for sample in spool.samples) == sorted(
        (each.time, each.cpu, each.pid, each.tid, each.comm) for each in expected
    )
    assert [sample[0] for sample in spool.samples] == sorted(sample[0] for sample in spool.samples)
    assert len(expected) > 500
    result, _ = imported(tmp_path, path, read=ReadOptions(cache=perf.cache))
    assert result.complete
    (file,) = result.files
    assert file.rows["samples"] == len(expected)
    # One of its files alone is none.
    alone = tmp_path / "data"
    shutil.copyfile(path / "data", alone)
    with pytest.raises(Unreadable, match="the others are not there"):
        taken(alone, perf.cache)
    shutil.rmtree(path)


def test_stacks_that_were_copied_for_unwinding_are_counted(perf):
    path = perf.record("dwarf.data", "-a", "--call-graph", "dwarf,4096", "-F", "197", "-N", seconds=0.5)
    heads = re.findall(r"\[(\d+)\] +(\d+)\.(\d{9}):", perf.script(path, "--ns", "-G", "-F", "cpu,time"))
    spool, intake = taken(path, perf.cache)
    assert not list(intake.left_out)
    found = [(sample[1], sample[0]) for sample in spool.samples]
    assert found == [(int(cpu), int(s) * 10**9 + int(f)) for cpu, s, f in heads]
    reasons = {source: reason for source, reason, _ in intake.summary.missing}
    assert f"{len(found):,} samples" in reasons["user stacks"]
    # What ran is known all the same, and the kernel's part of the stack.
    assert all(sample[5] for sample in spool.samples)
    assert max(len(sample[5]) for sample in spool.samples) > 3


def test_recordings_without_cores_say_so(perf):
    path = perf.record("alone.data", "-g", "-F", "997", "-N")
    spool, intake = taken(path, perf.cache)
    assert {sample[1] for sample in spool.samples} == {0}
    assert "cores" in {source for source, _, _ in intake.summary.missing}
    listed = re.findall(
        r"^ *(.*?) +(\d+)/(\d+) +(\d+)\.(\d{9})", perf.script(path, "--ns", "-F", "comm,pid,tid,time"), re.M
    )
    heads = [(int(s) * 10**9 + int(f), int(pid), int(tid), comm) for comm, pid, tid, s, f in listed]
    assert [(each[0], *each[2:5]) for each in spool.samples] == heads


def test_names_forks_weights_and_other_events(perf):
    path = perf.record("several-events.data", *FLAGS["several-events"])
    spool, intake = taken(path, perf.cache)
    comms = {sample[4] for sample in spool.samples}
    assert {"two words 7", "ls"} <= comms
    assert spool.forks > 0
    assert {sample[6] for sample in spool.samples} == {1_000_000 // 997}
    switches = len(perf.expected(path, "context-switches"))
    assert intake.summary.others == {"context-switches": switches}
    chosen, _ = taken(path, perf.cache, event="context-switches")
    assert len(chosen.samples) == switches
    with pytest.raises(Unreadable, match="has no event instructions"):
        taken(path, perf.cache, event="instructions")


def test_wall_time_is_the_clock_data_or_asked_for(perf):
    path = perf.record("clock.data", "-a", "-g", "-F", "497", "-N", "-k", "mono", seconds=0.5)
    spool, _ = taken(path, perf.cache, offset=None)
    text = perf.script(path, "-F", "comm,pid,tid,tod", "--ns")
    first = re.search(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{6})", text)
    assert first is not None
    stamp = subprocess.run(["date", "-d", first[1], "+%s"], capture_output=True, text=True, check=True).stdout
    assert spool.samples[0][0] // 1000 == int(stamp) * 10**6 + int(first[2])
    plain = perf.record(*SHORT, seconds=0.5)
    with pytest.raises(NoWallTime):
        taken(plain, perf.cache, offset=None)


def test_symbols_of_elsewhere_are_not_made_up(perf, tmp_path):
    path = perf.record("elsewhere.data", "-a", "-g", "-F", "497", "--no-buildid-cache", seconds=0.5)
    content = bytearray(path.read_bytes())
    # Another machine: other build ids, and a kernel that is not this one.
    for match in re.finditer(rb"/usr/[\w./-]+|\[kernel\.kallsyms\]\0", bytes(content)):
        head = match.start() - 24
        if struct.unpack_from("<i", content, head - 4)[0] == -1:
            content[head : head + 20] = bytes(20 * [7])
    other = tmp_path / "other.data"
    other.write_bytes(content)
    spool, intake = taken(other, tmp_path / "empty")
    kernel = {frame.name for sample in spool.samples for frame in sample[5] if frame.kind == "kernel"}
    assert kernel
    assert all(name.startswith("0x") for name in kernel)
    assert {"kernel symbols", "user symbols"} <= {source for source, _, _ in intake.summary.missing}
    # With the kernel's symbols from a file.
    symbols = tmp_path / "kallsyms"
    shutil.copyfile("/proc/kallsyms", symbols)
    spool, _ = taken(other, tmp_path / "empty", kallsyms=symbols)
    kernel = {frame.name for sample in spool.samples for frame in sample[5] if frame.kind == "kernel"}
    assert "do_syscall_64" in kernel


def test_a_kernel_that_moved_is_found_again(perf, tmp_path):
    path = perf.record(*SHORT, seconds=0.5)
    shift = 0x1000000
    lines = Path("/proc/kallsyms").read_text().splitlines()
    moved = tmp_path / "System.map"
    rows = (line.split(" ", 1) for line in lines if not line.endswith("]"))
    moved.write_text("".join(f"{int(address, 16) + shift:016x} {rest}\n" for address, rest in rows if int(address, 16)))
    there, _ = taken(path, perf.cache, kallsyms=moved)
    here, _ = taken(path, perf.cache)
    names = [
        [[f.name for f in sample[5] if f.module == "[kernel]"] for sample in each.samples] for each in (here, there)
    ]
    assert names[0] == names[1]


def test_foreign_byte_order_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "foreign.data"
    path.write_bytes(b"2ELIFREP" + bytes(200))
    with pytest.raises(Unreadable, match="other byte order"):
        taken(path, tmp_path)


def test_what_is_cut_off_is_counted_and_the_rest_kept(perf, tmp_path):
    path = perf.record(*SHORT, seconds=0.5)
    whole, _ = taken(path, perf.cache)
    content = path.read_bytes()
    half = tmp_path / "half.data"
    # Near the end: what is known of all processes comes first, and takes the more room the more there are.
    offset, size = struct.unpack_from("<QQ", content, 40)
    half.write_bytes(content[: offset + size - 30_000])
    spool, intake = taken(half, perf.cache)
    assert 0 < len(spool.samples) < len(whole.samples)
    reasons = [each.reason for each in intake.left_out]
    assert any("cut off" in reason for reason in reasons)
    known = {sample[:4] for sample in whole.samples}
    assert all(sample[:4] in known for sample in spool.samples)


def test_a_series_is_one_timeline(perf, tmp_path):
    series = tmp_path / "series"
    series.mkdir()
    perf.record(f"{series}/perf.data", "-a", "-g", "-F", "497", "-k", "mono", "-N", "--switch-output=1s", seconds=3.5)
    paths = sorted(series.iterdir())
    assert len(paths) > 2
    expected = [one for path in paths for one in perf.expected(path) if one.pid]
    result, recording = imported(tmp_path, *reversed(paths), start=None, read=ReadOptions(cache=perf.cache))
    assert result.complete
    assert not result.losses
    rows = recording.read("samples").to_pylist()
    # The idle task's interrupts are samples too.
    found = sorted((row["cpu"], row["pid"], row["tid"], row["comm"]) for row in rows if row["pid"])
    assert found == sorted((one.cpu, one.pid, one.tid, one.comm) for one in expected)
