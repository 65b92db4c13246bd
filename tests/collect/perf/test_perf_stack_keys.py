"""What stands for an address: equal where the meaning is equal, and only there."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.perf.record_builder import ksymbol, sample

from exhume.collect.perf.records import CONTEXT_KERNEL, CONTEXT_USER, chain_keys, decode_samples, has_user_part, walk
from exhume.collect.perf.sampler import KernelChanges
from exhume.collect.perf.stack_keys import MappingTable, key_parts
from exhume.collect.perf.stack_table import Chain
from exhume.collect.symbols.mappings import AddressSpace, FileKey, MappedFile, Mapping, mapped_file

FUNCTION = 0x100
PAGES = 4
FILE_BYTES = PAGES * 0x1000
KERNEL = 0xFFFF_FFFF_8000_0000


class Functions:
    """In place of the symboliser: functions of a fixed length, in the kernel and in the files that were read."""

    def __init__(self, *read: str) -> None:
        self._read = {name: number for number, name in enumerate(read, start=1)}

    def kernel_functions(self, addresses: np.ndarray) -> np.ndarray:
        return np.where(addresses >= KERNEL, (addresses - np.uint64(KERNEL)) // np.uint64(FUNCTION), -1).astype(np.intp)

    def file_functions(self, file: MappedFile, offsets: np.ndarray) -> tuple[int, np.ndarray]:
        number = self._read.get(file.path)
        if number is None:
            return 0, np.full(len(offsets), -1, np.intp)
        return number, (offsets // np.uint64(FUNCTION)).astype(np.intp)


def file(path: str, inode: int = 1) -> MappedFile:
    return mapped_file(FileKey(8, 1, inode, 0, path))


def space(pid: int, layout: dict[int, tuple[MappedFile, int]]) -> AddressSpace:
    """A process with mappings of one length: start -> file and offset."""
    made = AddressSpace(pid)
    made.add([Mapping(start, start + FILE_BYTES, offset, mapped) for start, (mapped, offset) in layout.items()])
    return made


def keys_of(
    chains: Sequence[tuple[Sequence[int], Sequence[int], int]],
    spaces: Sequence[tuple[AddressSpace, int]],
    functions: Functions,
) -> list[int]:
    """Keys of chains (kernel addresses, user addresses, which space)."""
    samples = decode_samples(walk(b"".join(sample(1, 1, kernel=k, user=u) for k, u, _ in chains)))
    space_of = np.array([which for *_, which in chains], dtype=np.int64)
    links = key_parts(samples, MappingTable(spaces), space_of, functions)
    return chain_keys(samples, links, np.zeros(len(samples), dtype=np.uint64)).tolist()


# A place in one of three files: which file, and where. The first two were read, the third was not.
places = st.lists(st.tuples(st.integers(0, 2), st.integers(1, FILE_BYTES - 1)), min_size=1, max_size=6)
bases = st.lists(st.integers(1, 2**26), min_size=3, max_size=3, unique=True).map(lambda n: [0x10_0000 * x for x in n])
FILES = ("/lib/one.so", "/lib/two.so", "/lib/unread.so")


def meaning(chain: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What a chain means: functions; in a file that was not read, places. Callers are before their return address."""
    return [
        (which, offset if which == 2 else (offset - (index > 0)) // FUNCTION)
        for index, (which, offset) in enumerate(chain)
    ]


@given(places, places, bases, bases)
def test_equal_meaning_and_equal_key_are_the_same(one, other, base, other_base) -> None:
    spaces = [
        (space(10, {start: (file(path), 0) for start, path in zip(base, FILES, strict=True)}), 1),
        (space(20, {start: (file(path), 0) for start, path in zip(other_base, FILES, strict=True)}), 2),
    ]
    first, second, again = keys_of(
        [
            ((), [base[which] + offset for which, offset in one], 0),
            ((), [other_base[which] + offset for which, offset in other], 1),
            ((), [other_base[which] + offset for which, offset in one], 1),
        ],
        spaces,
        Functions(*FILES[:2]),
    )
    assert first == again
    assert (first == second) == (meaning(one) == meaning(other))


def test_different_parts_of_a_file_mapped_apart_are_reported_by_their_offset() -> None:
    program = file("/bin/program")
    spaces = [
        (space(10, {0x10000: (program, 0), 0x90000: (program, 0x8000)}), 1),
        (space(20, {0x50000: (program, 0x8000)}), 2),
    ]
    low, high, same = keys_of(
        [((), [0x10010], 0), ((), [0x90010], 0), ((), [0x50010], 1)], spaces, Functions("/bin/program")
    )
    assert high == same
    assert low != high


def test_the_same_path_in_two_containers_is_two_files() -> None:
    spaces = [(space(10, {0x10000: (file("/lib/a", 1), 0)}), 1), (space(20, {0x10000: (file("/lib/a", 2), 0)}), 2)]
    one, other = keys_of([((), [0x10010], 0), ((), [0x10010], 1)], spaces, Functions())
    assert one != other


def test_garbage_addresses_are_one() -> None:
    """A frame pointer that led astray: any number, in no mapping, with or without a known program."""
    spaces = [(space(10, {0x10000: (file("/lib/a"), 0)}), 1)]
    garbage = [0x1, 0xDEAD_BEEF, 2**47, 2**63, 2**64 - 4097, KERNEL + 0x500]
    keys = keys_of([((), [0x10010, each], 0) for each in garbage], spaces, Functions("/lib/a"))
    assert len(set(keys)) == 1
    (deeper,) = keys_of([((), [0x10010, 0x1, 0x2], 0)], spaces, Functions("/lib/a"))
    assert deeper != keys[0]


def test_the_ends_of_a_mapping() -> None:
    spaces = [
        (space(10, {0x10000: (file("/lib/a"), 0)}), 1),
        (space(20, {0x10000 + FILE_BYTES: (file("/lib/b"), 0)}), 2),
    ]
    end = 0x10000 + FILE_BYTES
    inside, past, before, other = keys_of(
        [((), [end - 1], 0), ((), [end], 0), ((), [0xFFFF], 0), ((), [end], 1)], spaces, Functions("/lib/a", "/lib/b")
    )
    assert past == before
    assert len({inside, past, other}) == 3


def test_compiled_code_of_different_processes_stays_apart() -> None:
    """The same nameless memory at the same address, in two processes; and in a fork, which has the same salt."""
    layout = {0x10000: (file("", 0), 0)}
    spaces = [(space(10, layout), 1), (space(20, layout), 2), (space(30, layout), 1)]
    one, other, fork = keys_of([((), [0x10010], which) for which in range(3)], spaces, Functions())
    assert one != other
    assert one == fork


@pytest.mark.parametrize("path", ["", "//anon", "[anon:v8]", "/memfd:doublemapper", "[heap]"])
def test_compiled_code_in_two_regions_of_a_process_stays_apart(path) -> None:
    """/proc gives nameless memory the offset 0 wherever it lies."""
    spaces = [(space(10, {0x10000: (file(path, 0), 0), 0x90000: (file(path, 0), 0)}), 1)]
    one, other = keys_of([((), [0x10010], 0), ((), [0x90010], 0)], spaces, Functions(path))
    assert one != other


def test_the_kernel_goes_by_function_where_it_ran_and_by_address_where_it_called() -> None:
    caller = KERNEL + 0x5010
    same, also, other, other_caller = keys_of(
        [
            ([KERNEL + 0x10, caller], (), -1),
            ([KERNEL + 0xF0, caller], (), -1),
            ([KERNEL + 0x110, caller], (), -1),
            ([KERNEL + 0x10, caller + 1], (), -1),
        ],
        [],
        Functions(),
    )
    assert same == also
    assert len({same, other, other_caller}) == 3


def test_a_kernel_function_is_not_a_user_function_of_the_same_number() -> None:
    spaces = [(space(10, {0x10000: (file("/lib/a"), 0)}), 1)]
    for number in range(3):
        in_kernel, in_user = keys_of(
            [([KERNEL + number * FUNCTION], (), -1), ((), [0x10000 + number * FUNCTION], 0)],
            spaces,
            Functions("/lib/a"),
        )
        assert in_kernel != in_user


def test_each_chain_stands_alone() -> None:
    """A chain without a marker is the kernel's, whatever the chain before it was."""
    bare = sample(1, 1, chain=[KERNEL + 0x510, KERNEL + 0x910])
    other = sample(1, 1, chain=[KERNEL + 0x510, KERNEL + 0x990])
    user = sample(1, 1, user=[0x10010])
    samples = decode_samples(walk(bare + user + bare + other))
    spaces = [(space(10, {0x10000: (file("/lib/a"), 0)}), 1)]
    links = key_parts(samples, MappingTable(spaces), np.zeros(4, dtype=np.int64), Functions())
    first, _, again, different = chain_keys(samples, links, np.zeros(4, dtype=np.uint64)).tolist()
    assert first == again
    assert first != different


def test_no_samples_and_no_spaces() -> None:
    assert keys_of([], [], Functions()) == []
    (key,) = keys_of([((), [0x10], -1)], [], Functions())
    assert key


def test_which_samples_have_a_user_part() -> None:
    data = sample(1, 1, kernel=[KERNEL]) + sample(1, 1, kernel=[KERNEL], user=[5]) + sample(1, 1, user=[5])
    assert has_user_part(decode_samples(walk(data))).tolist() == [False, True, True]
    assert has_user_part(decode_samples(walk())).tolist() == []


@pytest.mark.parametrize(
    ("chain", "kernel", "user"),
    [
        ([CONTEXT_KERNEL, 100, 200, 300, CONTEXT_USER, 10, 20], [100, 199, 299], [10, 19]),
        ([CONTEXT_USER, 10, 20, 30], [], [10, 19, 29]),
        ([100, 200], [100, 199], []),
        # A call through a null pointer: what follows is a return address all the same.
        ([CONTEXT_USER, 0, 20, 0, 30], [], [19, 29]),
        # A guest's part belongs to no process here.
        ([2**64 - 2048, 5, 6, CONTEXT_KERNEL, 100], [100], []),
        ([CONTEXT_USER], [], []),
    ],
)
def test_a_chain_is_split_into_leaf_and_callers(chain, kernel, user) -> None:
    cut = Chain(chain, None)
    assert (cut.kernel, cut.user) == (kernel, user)


class TestKernelChanges:
    """Kernel code that came or went matters when a sample lies in it."""

    def addresses(self, *values: int) -> np.ndarray:
        return np.array(values, dtype=np.uint64)

    def test_only_a_sample_inside_touches(self) -> None:
        changes = KernelChanges()
        assert not changes.touched(self.addresses(KERNEL))
        changes.note(walk(ksymbol(KERNEL + 0x1000, 0x100, "bpf_prog_1", 1), ksymbol(KERNEL + 0x9000, 0x10, "b", 2)))
        assert not changes.touched(self.addresses(KERNEL, KERNEL + 0x2000, KERNEL + 0xA000, 5, CONTEXT_KERNEL))
        assert changes.touched(self.addresses(5, KERNEL + 0x1080))
        assert not changes.touched(self.addresses(KERNEL + 0x1080)), "the change has been seen to"

    def test_a_large_program_around_a_small_one(self) -> None:
        changes = KernelChanges()
        changes.note(walk(ksymbol(KERNEL, 0x1000, "large", 1) + ksymbol(KERNEL + 0x100, 0x10, "small", 2)))
        assert changes.touched(self.addresses(KERNEL + 0x800))

    def test_many_changes_are_bounded(self) -> None:
        changes = KernelChanges()
        records = b"".join(ksymbol(KERNEL + n * 0x1000, 0x10, "p", n) for n in range(5000))
        changes.note(walk(records))
        assert len(changes._starts) == 1
        assert changes.touched(self.addresses(KERNEL + 0x1800))

    def test_an_absurd_range_does_not_wrap(self) -> None:
        changes = KernelChanges()
        changes.note(walk(ksymbol(2**64 - 16, 0xFFFF_FFFF, "p", 1)))
        assert not changes.touched(self.addresses(5, KERNEL))
