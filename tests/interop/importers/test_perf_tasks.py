"""What processes had mapped when they were sampled, through forks and execs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.collect.symbols.mappings import AddressSpace, FileKey, Mapping, mapped_file
from exhume.interop.importers.perf_data import tasks as tasks_module
from exhume.interop.importers.perf_data.records import Chains, HeldSamples
from exhume.interop.importers.perf_data.tasks import Fork, Maps, TaskDecoder, Tasks

PIDS = (10, 11, 12)
PAGE = 0x1000
# A mapping: process, place, pages, file; or a fork: parent and child.
mappings = st.tuples(st.sampled_from(PIDS), st.integers(1, 24), st.integers(1, 8), st.integers(0, 3))
forks = st.tuples(st.sampled_from(PIDS), st.sampled_from(PIDS))
ADDRESSES = np.arange(0, 34 * PAGE, PAGE // 2, dtype=np.uint64)


def decoder() -> TaskDecoder:
    found = TaskDecoder()
    # The last one is memory, in which code may be compiled.
    found.files += [mapped_file(FileKey(8, 1, number, 1, f"/lib/{number}")) for number in (1, 2, 3)]
    found.files.append(mapped_file(FileKey(0, 0, 0, 0, "//anon")))
    return found


def samples_of(pids: list[int]) -> HeldSamples:
    late = np.full(len(pids), 1 << 62, np.uint64)
    zeros, numbers = np.zeros(len(pids), np.int64), np.array(pids, np.int64)
    nothing = Chains(np.zeros(0, np.uint64), zeros[:0], zeros[:0], late[:0])
    return HeldSamples(late, zeros, numbers, numbers, late, zeros, zeros - 1, nothing)


def located(tasks: Tasks, pid: int) -> list[tuple[int, int]]:
    """The file and offset of each address, in a process as it is now."""
    images, image_of = tasks.images_of(samples_of([pid]))
    file, offset = tasks.mappings.locate(images, np.repeat(image_of, len(ADDRESSES)), ADDRESSES)
    return list(zip(file.tolist(), offset.tolist(), strict=True))


@given(st.lists(st.lists(mappings | forks, max_size=30), min_size=1, max_size=4))
def test_newer_mappings_hide_older_ones_and_children_have_those_of_their_parents(batches):
    found = decoder()
    tasks = Tasks(found)
    spaces = {pid: AddressSpace(pid) for pid in PIDS}
    time = 0
    for batch in batches:
        made, forked = [], []
        for step in batch:
            time += 1
            if len(step) == 2:
                parent, child = step
                if parent != child:
                    forked.append(Fork(time, time, child, parent, child, parent, made_up=False))
                    spaces[child] = spaces[parent].fork(child)
            else:
                pid, place, pages, file = step
                made.append((time, time, pid, place * PAGE, pages * PAGE, 7 * PAGE, file))
                start, end = place * PAGE, (place + pages) * PAGE
                spaces[pid].add([Mapping(start, end, 7 * PAGE, found.files[file])])
        kinds = (np.uint64, np.int64, np.int64, np.uint64, np.uint64, np.uint64, np.int64)
        columns = zip(*made, strict=True) if made else ([] for _ in kinds)
        maps = Maps(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))
        tasks.apply([], forked, [], maps)
    for pid, space in spaces.items():
        expected = []
        for address in ADDRESSES.tolist():
            mapping = space.find(address)
            if mapping is None:
                expected.append((-1, address))
            else:
                offset = address if mapping.file.maybe_jit else address - mapping.start + mapping.offset
                expected.append((found.files.index(mapping.file), offset))
        assert located(tasks, pid) == expected


def test_mappings_of_ended_processes_are_forgotten(monkeypatch):
    monkeypatch.setattr(tasks_module, "_WORTH_TRIMMING", 100)
    found = decoder()
    tasks = Tasks(found)
    for number in range(1, 500):
        time = np.array([number], np.uint64)
        one, zero = np.array([number]), np.zeros(1, np.int64)
        words = (np.array([value], np.uint64) for value in (PAGE, PAGE, 0))
        ended = [tasks_module.Exit(number, number, number, number)] if number != 7 else []
        tasks.apply([], [], ended, Maps(time, one, one, *words, zero))
    assert len(tasks.mappings._start) < 300
    assert located(tasks, 7)[2] == (0, 0)
