"""The ring reader: whatever lies in a ring, wherever it wraps, each record is read once or counted."""

import contextlib
import ctypes
import mmap
import os
import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.perf.record_builder import (
    SimulatedRing,
    comm,
    exits,
    fork,
    ksymbol,
    lost,
    lost_samples,
    mmap2,
    record,
    sample,
    throttle,
    tracepoint,
)

from exhume.collect.perf import records as records_module
from exhume.collect.perf import rings as ring_module
from exhume.collect.perf.records import (
    CONTEXT_USER,
    LOST_AT_MOST,
    IdleLeaves,
    RecordType,
    decode_samples,
    isin,
    lost_counts,
    runs_of,
    throttled_while_busy,
    walk,
)
from exhume.collect.perf.rings import HEAD, TAIL, Ring, copy_out, load_fence, pages_for
from exhume.collect.perf.tasks import Tasks
from exhume.collect.perf.tracepoints import TracepointRows
from exhume.procfs.host import Host

pids = st.integers(1, 2**31 - 1)
times = st.integers(0, 2**63 - 1)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=15)
addresses = st.lists(st.integers(1, 2**64 - 4096), max_size=30)
stack_samples = st.builds(
    lambda pid, time, kernel, user, cpu: sample(pid, time, kernel=kernel, user=user, cpu=cpu),
    pids,
    times,
    addresses,
    addresses,
    st.integers(0, 95),
)
sound_records = st.one_of(
    stack_samples,
    st.builds(fork, pids, pids, times),
    st.builds(exits, pids, times),
    st.builds(comm, pids, names, times),
    st.builds(mmap2, pids, st.integers(0, 2**47), st.integers(1, 2**30), names, times),
    st.builds(lost, st.integers(1, 10**6)),
    st.builds(lost_samples, st.integers(1, 10**6)),
    st.builds(throttle, times),
    st.builds(ksymbol, st.integers(2**63, 2**64 - 2**32), st.integers(0, 2**20), names, times),
    st.builds(tracepoint, st.binary(min_size=8, max_size=80), pids, times),
)


class MappedRing(Ring):
    """The real reader over memory that the test writes."""

    def __init__(self, simulated: SimulatedRing) -> None:
        self._simulated = simulated
        self._words = memoryview(bytearray(mmap.PAGESIZE)).cast("Q")
        self._fence = lambda: None

    def read(self) -> bytes:
        self._words[HEAD], self._words[TAIL] = self._simulated.head, self._simulated.tail
        self._data = memoryview(self._simulated.data)
        content = super().read()
        self._simulated.tail = self._words[TAIL]
        return content


@given(
    st.lists(st.one_of(sound_records, st.none()), max_size=60),
    st.sampled_from([512, 1024, 4096, 16384]),
    st.integers(0, 2**48).map(lambda n: n * 8),
)
def test_every_record_is_read_once_or_counted_wherever_the_ring_wraps(writes, size, position) -> None:
    simulated = SimulatedRing(size, position)
    reader = MappedRing(simulated)
    read: list[bytes] = []
    counted = 0
    for write in [*writes, None, throttle(1), None]:
        if write is not None:
            simulated.write(write)
            continue
        data = reader.read()
        assert simulated.tail == simulated.head
        assert reader.read() == b""
        records = walk(data)
        assert records.damaged == [0]
        bounds = [*(records.starts * 8).tolist(), len(data)]
        read += [data[start:end] for start, end in pairwise(bounds)]
        counted += lost_counts(records)[0]
    assert read == simulated.content
    # The test's own records of losses may have been refused as well.
    assert counted == simulated.refused + sum(lost_counts(walk(each))[0] for each in simulated.accepted)


@given(st.binary(min_size=1, max_size=200), st.integers(0, 1000), st.integers(0, 2**40))
def test_copy_out_joins_what_wraps(content, slack, position) -> None:
    data = bytearray(len(content) + slack)
    for at, byte in enumerate(content, start=position):
        data[at % len(data)] = byte
    assert copy_out(memoryview(data), position, position + len(content)) == content


@given(st.lists(stack_samples, max_size=20), st.lists(stack_samples, max_size=20))
def test_samples_of_several_rings_are_decoded_as_they_were_written(one, other) -> None:
    samples = decode_samples(walk(b"".join(one), b"".join(other)))
    wanted = [each for each in [*one, *other] if struct.unpack_from("<Q", each, 32)[0]]
    assert len(samples) == len(wanted)
    for index, each in enumerate(wanted):
        pid, tid, time, cpu, _, count = struct.unpack_from("<IIQIIQ", each, 8)
        assert (samples.pid[index], samples.tid[index]) == (pid, tid)
        assert (samples.time[index], samples.cpu[index]) == (time, cpu)
        assert samples.chain(index).tolist() == list(struct.unpack_from(f"<{count}Q", each, 40))


def test_a_record_that_reaches_into_the_next_ring_is_damage() -> None:
    first, second = sample(1, 1, kernel=[2**63]), sample(2, 2, kernel=[2**63])
    long = struct.pack("<IHH", RecordType.SAMPLE, 0, len(first) + len(second)) + first[8:]
    records = walk(long, second + first)
    assert records.damaged == [len(first), 0]
    assert decode_samples(records).pid.tolist() == [2, 1]


HALT, IDLE, SOFTIRQ = 2**63 + 16, 2**63 + 32, 2**63 + 48


def test_samples_that_are_known_to_be_idle_are_counted_and_left_out() -> None:
    leaves = IdleLeaves()
    data = sample(0, 1, kernel=[HALT, IDLE, 2**63], cpu=3) + sample(0, 2, kernel=[SOFTIRQ, IDLE, 2**63], cpu=1)
    samples = decode_samples(walk(data), leaves)
    assert len(samples) == 2 and len(samples.idle_cpus) == 0, "nothing is known yet"
    leaves.learn(samples, np.array([True, False]))
    others = [
        sample(0, 3, kernel=[HALT, IDLE], cpu=2),
        sample(7, 4, kernel=[HALT, IDLE, 2**63]),
        sample(0, 5, kernel=[HALT, SOFTIRQ, 2**63]),
        sample(0, 6, kernel=[SOFTIRQ, IDLE, 2**63]),
        sample(0, 7, kernel=[HALT]),
        sample(0, 8, chain=[CONTEXT_USER, HALT, IDLE]),
        sample(0, 9, kernel=[HALT, IDLE], claims=50),
    ]
    samples = decode_samples(walk(data + b"".join(others)), leaves)
    assert samples.idle_cpus.tolist() == [3, 2]
    assert samples.time.tolist() == [2, 4, 5, 6, 7, 8]
    leaves.forget()
    assert len(decode_samples(walk(data), leaves)) == 2


def test_what_is_found_to_be_idle_stays_counted() -> None:
    samples = decode_samples(walk(sample(0, 1, kernel=[HALT, IDLE], cpu=3) + sample(5, 2, user=[7, 8], cpu=1)))
    busy = samples.without(np.array([True, False]))
    assert (busy.pid.tolist(), busy.idle_cpus.tolist()) == ([5], [3])
    assert busy.chain(0).tolist() == [CONTEXT_USER, 7, 8]


def read_everything(*parts: bytes) -> list[int]:
    """All that is ever done with drained records; returns the damaged bytes."""
    records = walk(*parts)
    samples = decode_samples(records)
    counts = lost_counts(records)
    np.array(counts, dtype=np.uint32)
    throttled_while_busy(records)
    tasks = Tasks(Host(proc=Host().proc / "does-not-exist"))
    tasks.apply([records], set(samples.pid.tolist()))
    for index in range(len(samples)):
        tasks.image_at(int(samples.pid[index]), int(samples.time[index]))
    TracepointRows([]).decode(records, tasks.name_at)
    tasks.settle()
    return records.damaged


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_garbage_never_ends_the_recording(parts) -> None:
    damaged = read_everything(*parts)
    assert len(damaged) == len(parts)
    assert all(0 <= count <= len(part) for count, part in zip(damaged, parts, strict=True))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*RecordType, 1, 8, 14, 21, 255, 2**32 - 1]), st.integers(0, 20), st.integers(0, 255)
        ),
        max_size=20,
    )
)
def test_records_too_short_for_their_type_are_dropped_and_counted(shapes) -> None:
    """Well-formed headers, but bodies of any length with any content."""
    parts = [record(kind, bytes([fill]) * words * 8) for kind, words, fill in shapes]
    (damaged,) = read_everything(b"".join(parts))
    records = walk(b"".join(parts))
    kept = sum(int(records.words[start] >> np.uint64(48)) for start in records.starts)
    assert kept + damaged == sum(map(len, parts))


@pytest.mark.parametrize("kind", [kind for kind in RecordType if kind not in (5, 6)])
def test_a_bare_header_at_the_very_end_is_damage(kind) -> None:
    whole = sample(1, 1, kernel=[2**63])
    records = walk(whole + record(kind, b""))
    assert records.damaged == [8]
    assert len(records.starts) == 1


@pytest.mark.parametrize("size", [0, 4, 7, 12, 9, 65528])
def test_an_impossible_size_ends_the_walk_of_its_own_ring_alone(size) -> None:
    whole = sample(1, 1, kernel=[2**63])
    broken = struct.pack("<IHH", RecordType.SAMPLE, 0, size) + bytes(40)
    records = walk(whole + broken + whole, whole)
    assert records.damaged == [len(broken) + len(whole), 0]
    assert len(decode_samples(records)) == 2


def test_a_truncated_record_is_damage() -> None:
    whole = sample(7, 1, kernel=[2**63, 2**63 + 1], user=[5])
    for length in range(len(whole)):
        (damaged,) = walk(whole + whole[:length]).damaged
        assert damaged == length
        assert len(decode_samples(walk(whole + whole[:length]))) == 1


@pytest.mark.parametrize("claims", [4, 5, 2**20, 2**31, 2**32, 2**63, 2**64 - 1])
def test_a_callchain_that_runs_past_its_record_is_dropped(claims) -> None:
    chain = [2**64 - 128, 2**63, 2**63 + 8]
    data = sample(1, 1, chain=chain, claims=claims) + sample(2, 2, chain=chain)
    assert decode_samples(walk(data)).pid.tolist() == [2]


def test_a_sample_without_a_callchain_is_dropped() -> None:
    assert len(decode_samples(walk(sample(1, 1)))) == 0
    assert len(decode_samples(walk())) == 0
    assert len(decode_samples(walk(b"", b""))) == 0


@given(st.lists(st.lists(st.integers(1, 10**9), max_size=5), min_size=1, max_size=5))
def test_losses_are_counted_exactly_for_each_ring(counts) -> None:
    parts = [b"".join((lost if n % 2 else lost_samples)(n) for n in ring) for ring in counts]
    assert lost_counts(walk(*parts)) == [sum(ring) for ring in counts]


def test_an_absurd_loss_still_fits_its_column() -> None:
    assert lost_counts(walk(lost(2**64 - 1) + lost(2**64 - 1))) == [LOST_AT_MOST]


def test_throttling_counts_where_there_was_work() -> None:
    busy, idle = sample(5, 1, kernel=[2**63]), sample(0, 1, kernel=[2**63])
    assert throttled_while_busy(walk(busy + throttle(2), idle + throttle(2), throttle(2) + busy)) == [1, 0, 0]


@pytest.mark.parametrize(("wanted", "pages"), [(0, 1), (1, 1), (4096, 1), (4097, 2), (8193, 4), (500_000, 128)])
def test_rings_are_a_power_of_two_of_pages(wanted, pages) -> None:
    assert pages_for(wanted * mmap.PAGESIZE // 4096) == pages


@pytest.fixture
def descriptor():
    fd = os.open("/dev/null", os.O_RDONLY)
    yield fd
    # A ring that could not be mapped has closed it.
    with contextlib.suppress(OSError):
        os.close(fd)


def test_where_memory_is_limited_the_ring_is_smaller(monkeypatch, descriptor) -> None:
    asked = []

    def limited(fd: int, length: int):
        asked.append(length // mmap.PAGESIZE - 1)
        if asked[-1] > 8:
            raise PermissionError
        return memory(-1, length)

    memory = mmap.mmap
    monkeypatch.setattr(ring_module.mmap, "mmap", limited)
    ring = Ring(descriptor, 0, 32 * mmap.PAGESIZE, lambda: None)
    assert asked == [32, 16, 8]
    assert ring.size == 8 * mmap.PAGESIZE
    ring.close()


def test_where_no_ring_can_be_had_the_event_is_closed(monkeypatch, descriptor) -> None:
    def refused(fd: int, length: int):
        raise PermissionError

    monkeypatch.setattr(ring_module.mmap, "mmap", refused)
    with pytest.raises(PermissionError):
        Ring(descriptor, 0, 32 * mmap.PAGESIZE, lambda: None)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_x86_needs_no_fence(monkeypatch) -> None:
    monkeypatch.setattr(ring_module.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(ring_module.ctypes, "CDLL", pytest.fail)
    assert load_fence()() is None


def test_aarch64_fences_with_libatomic_where_it_is(monkeypatch) -> None:
    fenced = []

    class Library:
        def __init__(self, name: str) -> None:
            assert name == "libatomic.so.1"
            self.atomic_thread_fence = fenced.append

    monkeypatch.setattr(ring_module.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(ring_module.ctypes, "CDLL", Library)
    load_fence()()
    assert fenced == [5]  # sequentially consistent


@pytest.mark.parametrize("missing", [OSError, AttributeError])
def test_aarch64_without_libatomic_enters_the_kernel_instead(monkeypatch, missing) -> None:
    def absent(name: str):
        raise missing

    monkeypatch.setattr(ring_module.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(ring_module.ctypes, "CDLL", absent)
    assert load_fence() is os.getppid


def test_the_fence_stands_between_the_head_and_the_data_and_before_the_tail(monkeypatch) -> None:
    simulated = SimulatedRing(512)
    simulated.write(throttle(1))
    reader = MappedRing(simulated)
    tails = []
    reader._fence = lambda: tails.append(reader._words[TAIL])
    assert reader.read() == throttle(1)
    assert tails == [0, 0]
    assert simulated.tail == len(throttle(1))


def test_pointers_are_as_wide_as_the_ring_assumes() -> None:
    assert ctypes.sizeof(ctypes.c_long) == 8


def full_ring(seed: int) -> bytes:
    """Many records, some with bodies of words that look like headers."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(1500):
        kind, words = int(rng.choice([3, 4, 7, 9, 10])), int(rng.integers(1, 30))
        body = rng.integers(0, 2**63, words, dtype=np.uint64)
        if rng.random() < 0.2:
            sizes = rng.integers(0, 40, words, dtype=np.uint64) * np.uint64(8)
            body = sizes << np.uint64(48) | rng.integers(0, 40, words, dtype=np.uint64)
        parts.append(record(kind, body.tobytes()))
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(6))
def test_records_of_a_full_ring_are_found_as_if_walked_one_by_one(seed, monkeypatch) -> None:
    whole = full_ring(seed)
    broken = struct.pack("<IHH", RecordType.SAMPLE, 0, [0, 4, 12, 65528][seed % 4]) + bytes(40)
    rings = {
        "whole": (whole, full_ring(seed + 100)),
        "cut": (whole[: -8 * (seed + 1)], whole),
        "broken": (whole + broken + whole, whole),
        "odd": (whole + b"abc", whole),
    }
    found = {name: walk(*parts) for name, parts in rings.items()}
    monkeypatch.setattr(records_module, "_headers", lambda words, bounds: None)
    for name, parts in rings.items():
        walked = walk(*parts)
        assert found[name].starts.tolist() == walked.starts.tolist(), name
        assert found[name].damaged == walked.damaged, name


def test_the_records_of_a_full_ring_are_found_by_the_array() -> None:
    words = np.frombuffer(full_ring(1), np.uint64)
    found = records_module._headers(words, np.zeros(1, np.int64))
    assert found is not None
    places, heads = found
    assert len(places) == 1500
    assert heads.tolist() == words[places].tolist()


@pytest.mark.parametrize("kind", [np.int32, np.uint64])
def test_values_are_found_whether_they_come_in_runs_or_not(kind) -> None:
    rng = np.random.default_rng(7)
    for values in ([], [5], [5, 5], np.repeat(rng.integers(0, 50, 200), rng.integers(1, 9, 200)), rng.permutation(40)):
        wanted = np.array(values, dtype=kind)
        for chosen in (set(), {5}, {0, 7, 2**40}, set(range(10, 30))):
            assert isin(wanted, chosen).tolist() == [value in chosen for value in wanted.tolist()]


def test_runs_cover_all_values() -> None:
    first, lengths = runs_of(np.array([3, 3, 1, 3, 3, 3], dtype=np.uint64))
    assert (first.tolist(), lengths.tolist()) == ([0, 2, 3], [2, 1, 3])
