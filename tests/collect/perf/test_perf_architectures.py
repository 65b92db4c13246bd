"""What differs between architectures and kernels: numbers of system calls, tags in addresses, flags of events."""

import ctypes
import errno
import os

import numpy as np
import pytest
from tests.collect.perf.record_builder import comm, fork, ksymbol, lost, mmap2, sample

from exhume.collect.perf import attr, rings, sampler
from exhume.collect.perf import attr as syscalls
from exhume.collect.perf.attr import (
    NUMBERS,
    EventType,
    Flag,
    SampleType,
    numbers,
    sampling_event,
    task_event,
    tracepoint_event,
)
from exhume.collect.perf.source import PerfSource
from exhume.collect.sources import kmsg as kernel_clock
from exhume.collect.sources.kmsg import KernelLogClock
from exhume.collect.symbols.files import FileSymbols
from exhume.collect.symbols.frame import make_frame
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.host import Host


def test_numbers_are_those_of_the_kernel_headers() -> None:
    """asm/unistd_64.h of x86 and asm-generic/unistd.h, which aarch64 uses."""
    assert (NUMBERS["x86_64"].perf_event_open, NUMBERS["aarch64"].perf_event_open) == (298, 241)
    assert {(n.fsopen, n.fsconfig, n.fsmount) for n in NUMBERS.values()} == {(430, 431, 432)}
    assert numbers("aarch64") is NUMBERS["aarch64"]


def test_the_numbers_of_this_machine_are_taken(monkeypatch) -> None:
    monkeypatch.setattr(syscalls.platform, "machine", lambda: "aarch64")
    assert numbers().perf_event_open == 241


def test_an_unknown_architecture_turns_off_the_stacks_and_nothing_else(monkeypatch) -> None:
    monkeypatch.setattr(syscalls.platform, "machine", lambda: "riscv64")
    with pytest.raises(SourceUnavailable, match="riscv64") as caught:
        numbers()
    assert caught.value.missing.source == "stacks"
    clock = KernelLogClock()
    assert clock.measure() is False
    assert clock.offset_ns() == 0


@pytest.mark.parametrize("refusal", [errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.EMFILE])
def test_a_refused_clock_is_no_error(monkeypatch, refusal) -> None:
    def refused(*_: object, **__: object) -> int:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(kernel_clock, "open_event", refused)
    clock = KernelLogClock()
    assert clock.measure() is False
    assert (clock.measured, clock.offset_ns()) == (False, 0)


@pytest.mark.root
def test_system_calls_that_fail_say_why() -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        syscalls.call(numbers().fsmount, -1, 0, 0)
    assert caught.value.errno == errno.EBADF


def test_the_attribute_has_a_size_that_kernels_know() -> None:
    assert ctypes.sizeof(attr._Attr) == 112  # PERF_ATTR_SIZE_VER5
    assert attr._Attr.clockid.offset == 92
    assert attr._Attr.flags.offset == 40


def test_events_ask_for_what_the_decoder_reads() -> None:
    cycles, clock = sampling_event(True, 97), sampling_event(False, 97)
    assert (cycles.type, cycles.period, Flag.FREQ in cycles.flags) == (EventType.HARDWARE, 97, True)
    assert (clock.type, clock.period, Flag.FREQ in clock.flags) == (EventType.SOFTWARE, 10_309_278, False)
    layout = SampleType.TID | SampleType.TIME | SampleType.CPU
    assert cycles.sample_type == clock.sample_type == layout | SampleType.CALLCHAIN
    assert tracepoint_event(544).sample_type == layout | SampleType.RAW
    assert task_event(kernel_code=False).sample_type == layout
    assert Flag.SAMPLE_ID_ALL in task_event(kernel_code=False).flags
    assert task_event(kernel_code=True).flags == task_event(kernel_code=False).flags | Flag.KSYMBOL
    assert all(event.flags & (1 << 19) != 1 << 8 for event in (cycles, clock)), "idle is not excluded"
    assert not any(event.flags & (1 << 7) for event in (cycles, clock)), "exclude_idle would hide interrupts"


class Opened:
    """In place of a ring: what the kernel would have written since the last look."""

    def __init__(self, fd: int, cpu: int, wanted_bytes: int, fence: object) -> None:
        self.fd = fd
        self.cpu = cpu
        self.size = 1 << 20
        self.content = b""
        self.closed = False

    def read(self) -> bytes:
        content, self.content = self.content, b""
        return content

    def join(self, fd: int) -> None:
        """Nothing to join."""

    def enable(self) -> None:
        """Nothing to enable."""

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """No kernel: what is opened is kept, and refused by `refuse`."""

    class Kernel:
        def __init__(self) -> None:
            self.specs = []
            self.refuse = lambda spec, cpu: None
            self.host = Host(proc=tmp_path / "proc", sys=tmp_path / "sys")
            self.cpus("0-1")

        def cpus(self, listed: str) -> None:
            path = tmp_path / "sys/devices/system/cpu/online"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(listed + "\n")

        def open(self, spec, *, pid: int, cpu: int) -> int:
            number = self.refuse(spec, cpu)
            if number:
                raise OSError(number, os.strerror(number))
            self.specs.append((spec, cpu))
            return 1000 + len(self.specs)

    kernel = Kernel()
    monkeypatch.setattr(rings, "open_event", kernel.open)
    monkeypatch.setattr(rings, "Ring", Opened)
    monkeypatch.setattr(rings.os, "close", lambda fd: None)
    return kernel


def task_events(kernel) -> list[bool]:
    return [Flag.KSYMBOL in spec.flags for spec, _ in kernel.specs if Flag.TASK in spec.flags]


def test_kernel_code_is_followed_where_the_kernel_reports(opened) -> None:
    rings.RingSet(opened.host, 97, [])
    assert task_events(opened) == [True, True]


def test_an_older_kernel_is_probed_once(opened) -> None:
    asked = []

    def refuse(spec, cpu):
        if Flag.KSYMBOL in spec.flags:
            asked.append(cpu)
            return errno.EINVAL
        return None

    opened.refuse = refuse
    rings.RingSet(opened.host, 97, [])
    assert task_events(opened) == [False, False]
    assert asked == [0]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EACCES, "CAP_PERFMON"),
        (errno.EPERM, "CAP_PERFMON"),
        (errno.ENOSYS, "CONFIG_PERF"),
        (errno.EMFILE, "ulimit"),
    ],
)
def test_a_refusal_names_what_would_help(opened, number, says) -> None:
    opened.refuse = lambda spec, cpu: number
    with pytest.raises(SourceUnavailable) as caught:
        rings.RingSet(opened.host, 97, [])
    assert says in caught.value.missing.remedy


def test_cores_come_and_go(opened) -> None:
    ring_set = rings.RingSet(opened.host, 97, [])
    assert sorted(ring_set.rings) == [0, 1]
    assert ring_set.follow_hotplug() == []
    opened.cpus("0,2")
    (gone,) = ring_set.follow_hotplug()
    assert gone.samples.cpu == 1
    assert not gone.samples.closed, "what it still holds is read first"
    assert sorted(ring_set.rings) == [0, 2]
    opened.cpus("0-2")
    assert ring_set.follow_hotplug() == []
    assert sorted(ring_set.rings) == [0, 1, 2]


def test_a_core_that_goes_while_it_is_opened_is_passed_over(opened) -> None:
    opened.refuse = lambda spec, cpu: errno.ENODEV if cpu == 1 else None
    assert sorted(rings.RingSet(opened.host, 97, []).rings) == [0]


def test_a_core_that_is_listed_before_it_can_be_watched_is_tried_again(opened) -> None:
    """On its way back the kernel lists a core first; a busy machine takes its time until events can be opened there."""
    ring_set = rings.RingSet(opened.host, 97, [])
    opened.cpus("0")
    ring_set.follow_hotplug()
    opened.cpus("0-1")
    opened.refuse = lambda spec, cpu: errno.ENODEV if cpu == 1 else None
    ring_set.follow_hotplug()
    assert sorted(ring_set.rings) == [0]
    opened.refuse = lambda spec, cpu: None
    ring_set.follow_hotplug()
    assert sorted(ring_set.rings) == [0, 1]


def test_a_core_that_cannot_be_opened_leaks_none_that_went(opened) -> None:
    ring_set = rings.RingSet(opened.host, 97, [])
    leaving = ring_set.rings[1]
    opened.cpus("0,2")
    opened.refuse = lambda spec, cpu: errno.EMFILE
    with pytest.raises(OSError, match="Too many open files"):
        ring_set.follow_hotplug()
    opened.refuse = lambda spec, cpu: None
    assert ring_set.follow_hotplug() == [leaving]
    assert sorted(ring_set.rings) == [0, 2]


def drained(sampler_: PerfSource, tick: int, samples: bytes = b"", tasks: bytes = b""):
    """One tick of a sampler with these records in the rings of core 0."""
    sampler_.end()  # each tick waits for names, as the last does
    ring = sampler_._rings.rings[0]
    ring.samples.content, ring.tasks.content = samples, tasks
    return sampler_.read(Tick(tick, tick * 10**9, (tick + 1) * 10**9, 0))


def commands(rows) -> list[str]:
    return list(rows["samples"]["comm"])


def frames(rows) -> set[str]:
    return set(rows.get("frames", {}).get("name", ()))


PROGRAM = mmap2(50, 0x40_0000, 0x10000, "/bin/none", 20)


@pytest.fixture
def fake_sampler(opened):
    opened.host.proc.mkdir()
    made = PerfSource(opened.host, 97)
    drained(made, -1)
    yield made
    made._sampler.close()


@pytest.mark.parametrize(
    ("machine", "resolved"), [("aarch64", {"none+0x1000", "none+0x1fff"}), ("x86_64", {"[unknown]"})]
)
def test_tags_and_authentication_codes_go_on_aarch64_alone(opened, monkeypatch, machine, resolved) -> None:
    """A tag in the top byte of what ran, a code above the address in a return address."""
    (opened.host.proc / "self").mkdir(parents=True)
    (opened.host.proc / "self/maps").write_text("ffffe000000-fffff000000 rw-p 00000000 00:00 0 [stack]\n")
    monkeypatch.setattr(sampler.platform, "machine", lambda: machine)
    made = PerfSource(opened.host, 97)
    drained(made, -1)
    user = [0xB400_0000_0040_1000, 0x0055_0000_0040_2000]
    rows = drained(made, 0, sample(50, 40, user=user), fork(50, 1, 5) + comm(50, "app", 10, execs=True) + PROGRAM)
    assert frames(rows) == resolved


def test_kernel_addresses_and_markers_keep_their_upper_bits(opened, monkeypatch) -> None:
    monkeypatch.setattr(sampler.platform, "machine", lambda: "aarch64")
    opened.host.proc.mkdir()
    made = PerfSource(opened.host, 97)
    drained(made, -1)
    rows = drained(made, 0, sample(50, 40, kernel=[0xFFFF_8000_0801_0000]))
    assert frames(rows) == {"0xffff800008010000"}


def test_a_stale_name_is_not_kept_where_records_were_lost(fake_sampler, opened) -> None:
    first = comm(50, "before", 10, execs=True) + PROGRAM
    rows = drained(fake_sampler, 0, sample(50, 40, user=[0x40_1000]), first)
    assert commands(rows) == ["before"]
    assert commands(drained(fake_sampler, 1, sample(50, 50, user=[0x40_1000]))) == ["before"]
    rows = drained(fake_sampler, 2, sample(50, 60, user=[0x40_1000]), lost(3, 55, identified=True))
    assert commands(rows) == [":50"]
    assert [(loss.kind, loss.count) for loss in fake_sampler.take_losses()] == [("lost-task-records", 3)]
    assert fake_sampler.take_losses() == []


def test_what_came_together_with_a_loss_is_not_kept_either(fake_sampler) -> None:
    """An exec that was lost may have followed the one that was reported."""
    reported = comm(50, "before", 10, execs=True) + PROGRAM + lost(1, 30, identified=True)
    drained(fake_sampler, 0, sample(50, 40, user=[0x40_1000]), reported)
    assert commands(drained(fake_sampler, 1, sample(50, 90, user=[0x40_1000]))) == [":50"]


def test_a_ring_that_is_full_is_not_trusted_before_the_kernel_reports_the_loss(fake_sampler) -> None:
    reported = comm(50, "before", 10, execs=True) + PROGRAM
    fake_sampler._rings.rings[0].tasks.size = len(reported) + 1000
    drained(fake_sampler, 0, sample(50, 40, user=[0x40_1000]), reported)
    assert commands(drained(fake_sampler, 1, sample(50, 90, user=[0x40_1000]))) == [":50"]


def test_a_tick_that_failed_is_not_trusted(fake_sampler, monkeypatch) -> None:
    """The records of that tick are read and gone; what they reported may not have been taken in."""
    reported = comm(50, "before", 10, execs=True) + PROGRAM
    drained(fake_sampler, 0, sample(50, 40, user=[0x40_1000]), reported)
    with monkeypatch.context() as broken:
        broken.setattr(fake_sampler._tasks, "apply", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            drained(fake_sampler, 1, sample(50, 60), comm(50, "unheard", 55, execs=True))
    assert commands(drained(fake_sampler, 2, sample(50, 90, user=[0x40_1000]))) == [":50"]


def test_an_unknown_program_and_garbage_in_a_known_one_are_distinguished(fake_sampler) -> None:
    """Both have only addresses that mean nothing; one of them has frames that say so."""
    known = fork(50, 1, 5) + comm(50, "app", 10, execs=True) + PROGRAM
    data = sample(60, 40, user=[0x1, 0x2]) + sample(50, 41, user=[0x3, 0x4])
    rows = drained(fake_sampler, 0, data, known)
    unknown, garbage = rows["samples"]["stack"].tolist()
    frames_of = dict(zip(rows["stacks"]["stack"], rows["stacks"]["frames"], strict=True))
    assert frames_of[unknown] == []
    assert len(frames_of[garbage]) == 2


def test_kernel_code_that_was_replaced_is_named_again(fake_sampler, opened, monkeypatch) -> None:
    kallsyms = opened.host.proc / "kallsyms"
    first = "ffffffff81000000 T _stext\nffffffff82000000 T _etext\nffffffffc0001000 t bpf_prog_old\t[bpf]\n"
    kallsyms.write_text(first)
    address = 0xFFFF_FFFF_C000_1010
    kernel = fake_sampler._sampler._symbolizer._kernel
    monkeypatch.setattr(kernel, "_clock", lambda: now)
    now = 100.0
    (before,) = frames(drained(fake_sampler, 0, sample(50, 40, kernel=[address])))
    kallsyms.write_text(first.replace("_old", "_new"))
    now = 110.0
    assert frames(drained(fake_sampler, 1, sample(50, 40, kernel=[address]))) == set(), "known, and reported"
    elsewhere = ksymbol(0xFFFF_FFFF_C009_0000, 0x100, "bpf_prog_far", 45)
    assert frames(drained(fake_sampler, 2, sample(50, 40, kernel=[address]), elsewhere)) == set()
    replaced = ksymbol(0xFFFF_FFFF_C000_1000, 0x100, "bpf_prog_new", 45)
    (after,) = frames(drained(fake_sampler, 3, sample(50, 50, kernel=[address]), replaced))
    assert (before, after) == ("bpf_prog_old", "bpf_prog_new")


def test_counts_are_by_core_whatever_the_samples_say(fake_sampler) -> None:
    data = sample(50, 1, kernel=[2**63], cpu=0) + sample(50, 2, kernel=[2**63], cpu=1) * 2
    rows = drained(fake_sampler, 0, data + sample(50, 3, kernel=[2**63], cpu=4000))
    assert rows["sampling"]["cpu"].tolist() == [0, 1]
    assert rows["sampling"]["busy"].tolist() == [1, 2]
    assert np.all(rows["samples"]["weight_us"] == 10309)


def test_new_stacks_beyond_the_share_of_an_owner_lose_their_user_part_and_are_counted(
    fake_sampler, opened, monkeypatch
):
    monkeypatch.setattr(sampler, "_MAX_NEW_STACKS", 10)
    for pid, cgroup in ((50, "/attack.service"), (60, "/victim.service")):
        (opened.host.proc / str(pid)).mkdir()
        (opened.host.proc / str(pid) / "status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
        (opened.host.proc / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")
    tasks = b"".join(comm(pid, "x", 10, execs=True) + mmap2(pid, 0x40_0000, 0x10000, "/bin/x", 20) for pid in (50, 60))
    crowd = b"".join(sample(50, 40 + i, user=[0x40_1000 + 16 * i]) for i in range(50))
    few = b"".join(sample(60, 100 + i, user=[0x40_8000 + 16 * i]) for i in range(4))
    rows = drained(fake_sampler, 0, crowd + few, tasks)
    assert len(rows["samples"]["stack"]) == 54, "no sample is lost"
    names = frames(rows)
    assert {f"x+0x{0x8000 + 16 * i:x}" for i in range(4)} <= names
    assert len([name for name in names if name.startswith("x+0x1")]) == 6
    (loss,) = [loss for loss in fake_sampler.take_losses() if loss.kind == "lost-stacks"]
    assert loss.count == 44 and "uid 1000" in loss.text and "/attack.service" in loss.text


def test_a_sample_waits_for_its_names_and_is_written_with_them(fake_sampler, opened, monkeypatch) -> None:
    """Also into the next segment, with the process that it is of."""
    frame_of = {"waits": True}

    def answered(self, views, offsets):
        name = f"x+0x{offsets[0]:x}" if frame_of["waits"] else "named"
        return [make_frame("user", "/bin/x", name, patience=3 * frame_of["waits"]) for _ in offsets]

    monkeypatch.setattr(FileSymbols, "frames", answered)
    monkeypatch.setattr(FileSymbols, "take_changed", lambda self: set() if frame_of["waits"] else {"/bin/x"})
    monkeypatch.setattr(PerfSource, "end", lambda self: None)
    fake_sampler._sampler.ending = False
    first = comm(50, "app", 10, execs=True) + PROGRAM
    rows = drained(fake_sampler, 0, sample(50, 40, user=[0x40_1000]), first)
    assert "samples" not in rows and next(iter(rows["sampling"]["busy"])) == 1
    fake_sampler.begin_segment()
    frame_of["waits"] = False
    rows = drained(fake_sampler, 1)
    assert commands(rows) == ["app"] and frames(rows) == {"named"}
    assert list(rows["processes"]["pid"]) == [50]
    frame_of["waits"] = True
    drained(fake_sampler, 2, sample(50, 50, user=[0x40_2000]))
    ticks = [drained(fake_sampler, 3 + tick) for tick in range(4)]
    assert ["samples" in rows for rows in ticks] == [False, False, True, False], "as long as is reasonable"
