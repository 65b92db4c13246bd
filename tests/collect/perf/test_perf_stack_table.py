"""Stacks with names: reported once a segment, kept while in use, idle only where a core had nothing to do."""

import numpy as np
import pytest

from exhume.collect.perf import stack_table as stackbook
from exhume.collect.perf.idle import is_idle
from exhume.collect.perf.records import CONTEXT_KERNEL, CONTEXT_USER
from exhume.collect.perf.stack_table import Chain, Stack, StackTable
from exhume.collect.symbols.frame import JIT, KERNEL, USER, Frame, make_frame, stack_id
from exhume.collect.symbols.mappings import AddressSpace

FRAME_ENTRY = 0xACDD62DEDD7B8AF8
FRAME_MAIN = 0xE8FE5FCE88C8482C
STACK = 0xFB9F11866921EAC4
EMPTY = 0xB4B2797457A0A6E4

KERNEL_NAMES = {1: "entry", 2: "do_idle", 3: "default_idle", 4: "net_rx_action", 5: "copy_page"}


class Names:
    """In place of the symboliser: an address is a number with a name."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.changed: set[str] = set()
        self.user_frame = lambda address: make_frame(USER, "/bin/app", f"f{address}")

    def take_changed(self) -> set[str]:
        return self.changed

    def kernel(self, addresses: np.ndarray) -> list[Frame]:
        self.asked += addresses.tolist()
        return [make_frame(KERNEL, "[kernel]", KERNEL_NAMES.get(a, f"k{a}")) for a in addresses.tolist()]

    def users(self, batch) -> list[list[Frame]]:
        return [[self.user_frame(address) for address in addresses.tolist()] for _, addresses in batch]


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def book(names) -> StackTable:
    return StackTable(names)


def kernel_chain(*addresses: int) -> Chain:
    """Leaf first; callers are given as their names' numbers, so one is added for the call before the return."""
    leaf, *callers = addresses
    return Chain([CONTEXT_KERNEL, leaf, *(caller + 1 for caller in callers)], None)


def user_chain(*addresses: int, space: AddressSpace | None = None) -> Chain:
    return Chain([CONTEXT_USER, *addresses], space or AddressSpace(1))


def resolve(book: StackTable, chains: dict[int, Chain], idle_keys: set[int]) -> dict[int, Stack]:
    """What new callchains are, each sampled in the current segment."""
    resolved = book.resolve(chains, idle_keys)
    book.write(stack for stack in resolved.values() if not stack.idle)
    return resolved


def find(book: StackTable, key: int) -> Stack | None:
    """The stack of a callchain that is sampled again."""
    (stack,) = book.find([key])
    book.write([stack] if stack and not stack.idle else [])
    return stack


def reported(book: StackTable) -> tuple[list[int], list[str]]:
    rows = book.take_rows()
    return list(rows.get("stacks", {}).get("stack", ())), list(rows.get("frames", {}).get("name", ()))


def test_a_stack_and_its_frames_are_reported_once_a_segment(book) -> None:
    chain = kernel_chain(5, 1)
    stack = resolve(book, {7: chain}, set())[7]
    assert [frame.name for frame in stack.frames] == ["entry", "copy_page"], "root first"
    assert reported(book) == ([stack.id], ["entry", "copy_page"])
    assert find(book, 7) is stack
    assert reported(book) == ([], [])
    book.begin_segment()
    assert reported(book) == ([], []), "what is not sampled any more is not reported"
    assert find(book, 7) is stack
    assert reported(book) == ([stack.id], ["entry", "copy_page"])


def test_what_was_found_but_not_yet_taken_is_reported_in_the_segment_that_it_was_found_in(book) -> None:
    first = resolve(book, {7: kernel_chain(5, 1)}, set())[7]
    reported(book)
    second = resolve(book, {8: kernel_chain(4, 1)}, set())[8]
    assert reported(book) == ([second.id], ["net_rx_action"])
    book.begin_segment()
    assert find(book, 8) and find(book, 7)
    stacks, frames = reported(book)
    assert set(stacks) == {first.id, second.id}
    assert sorted(frames) == ["copy_page", "entry", "net_rx_action"]


def test_two_callchains_of_one_stack_are_one(book) -> None:
    resolved = resolve(book, {7: user_chain(10), 8: user_chain(10), 9: user_chain(11)}, set())
    assert resolved[7] is resolved[8]
    assert resolved[7].id != resolved[9].id
    assert len(reported(book)[0]) == 2


def test_every_frame_row_is_complete(book) -> None:
    space = AddressSpace(1)
    resolve(book, {7: Chain([CONTEXT_KERNEL, 5, CONTEXT_USER, 10], space)}, set())
    rows = book.take_rows()
    assert rows["frames"]["kind"] == ["user", "kernel"]
    assert rows["frames"]["module"] == ["/bin/app", "[kernel]"]
    assert rows["stacks"]["frames"] == [rows["frames"]["frame"]]


def test_idle_is_the_idle_task_with_an_idle_leaf(book) -> None:
    chains = {
        1: kernel_chain(3, 2, 1),  # the idle task, idle
        2: kernel_chain(4, 3, 2, 1),  # the idle task, interrupted
        3: kernel_chain(3, 2, 1),  # another task in a function of that name
    }
    resolved = resolve(book, chains, {1, 2})
    assert [resolved[key].idle for key in (1, 2, 3)] == [True, False, False]
    assert set(reported(book)[0]) == {resolved[2].id, resolved[3].id}


@pytest.mark.parametrize(
    ("path", "idle"),
    [
        # Leaf first. 5.4, whose default_idle had the name of a section's end; a platform's own driver; no name at all.
        (("__sched_text_end", "do_idle", "cpu_startup_entry"), True),
        (("some_soc_enter_idle", "cpuidle_enter_state", "cpuidle_enter", "do_idle"), True),
        (("[unknown]", "default_idle_call", "do_idle"), True),
        (("do_idle", "cpu_startup_entry"), True),
        (("pv_native_safe_halt", "default_idle", "arch_cpu_idle", "default_idle_call", "do_idle"), True),
        # Interrupts on an idle core, and what the idle task does besides.
        (("net_rx_action", "handle_softirqs", "asm_common_interrupt", "cpuidle_enter_state", "do_idle"), False),
        (("asm_sysvec_apic_timer_interrupt", "cpuidle_enter_state", "do_idle"), False),
        (("schedule_idle", "do_idle"), False),
        (("ttwu_do_activate", "sched_ttwu_pending", "flush_smp_call_function_queue", "do_idle"), False),
        (("mem_cgroup_iter", "memcg_stat_show"), False),
    ],
)
def test_what_calls_the_idle_routine_decides_whatever_that_is_named(path: tuple[str, ...], idle: bool) -> None:
    assert is_idle([make_frame(KERNEL, "[kernel]", name) for name in path]) is idle


def test_idle_is_remembered_and_never_reported(book) -> None:
    resolve(book, {1: kernel_chain(3, 2)}, {1})
    book.begin_segment()
    assert find(book, 1).idle
    assert reported(book) == ([], [])


def test_the_idle_task_without_a_kernel_part_is_not_idle(book) -> None:
    assert not resolve(book, {1: Chain([CONTEXT_KERNEL], None)}, {1})[1].idle


@pytest.mark.parametrize(
    "frame", [make_frame(JIT, "perf-map", "compiled"), make_frame(USER, "[anon]", "[anon]")], ids=["jit", "nameless"]
)
def test_jit_code_is_resolved_each_time(book, names, frame) -> None:
    names.user_frame = lambda address: frame
    before = resolve(book, {1: user_chain(10)}, set())[1]
    assert find(book, 1) is None
    names.user_frame = lambda address: make_frame(JIT, "perf-map", "recompiled")
    after = resolve(book, {1: user_chain(10)}, set())[1]
    assert [frame.name for frame in after.frames] == ["recompiled"]
    assert set(reported(book)[0]) == {before.id, after.id}


def test_an_unknown_program_has_the_kernel_part_alone(book) -> None:
    chain = Chain([CONTEXT_KERNEL, 5, CONTEXT_USER, 10, 20], None)
    assert [frame.name for frame in resolve(book, {1: chain}, set())[1].frames] == ["copy_page"]


def test_what_is_in_use_outlives_generations_and_the_rest_goes(book, monkeypatch) -> None:
    monkeypatch.setattr(stackbook, "GENERATION", 100)
    kept = resolve(book, {1: kernel_chain(5, 1)}, set())[1]
    for generation in range(1, 6):
        base = generation * 1000
        resolve(book, {base + n: user_chain(base + n) for n in range(101)}, set())
        assert find(book, 1) is kept
        assert len(book._young) + len(book._old) <= 2 * 102
    assert find(book, 1000) is None, "not used for two generations"


def test_forgetting_names_everything_again(book, names) -> None:
    resolve(book, {1: kernel_chain(5, 1)}, set())
    book.forget()
    assert find(book, 1) is None
    assert len(names.asked) == 2
    resolve(book, {1: kernel_chain(5, 1)}, set())
    assert len(names.asked) == 4


def test_known_kernel_addresses_are_not_resolved_again(book, names) -> None:
    resolve(book, {1: kernel_chain(5, 1)}, set())
    resolve(book, {2: kernel_chain(4, 1)}, set())
    assert names.asked == [1, 5, 4]


def test_a_stack_that_waits_for_names_is_resolved_again_when_its_module_changed(book, names) -> None:
    names.user_frame = lambda address: make_frame(USER, "/bin/app", f"app+{address}", patience=3)
    chains = {1: user_chain(10)}
    waiting = book.resolve(chains, set())[1]
    names.user_frame = lambda address: make_frame(USER, "/bin/app", f"f{address}")
    names.changed = {"/bin/other"}
    assert book.resolve(chains, set())[1] is waiting
    names.changed = {"/bin/app"}
    assert [frame.name for frame in book.resolve(chains, set())[1].frames] == ["f10"]


def test_ids_are_hashes_of_the_content_and_stay_what_they_are() -> None:
    """Recordings of other versions and other nodes are merged by these: the values are part of the format."""
    root, leaf = make_frame(KERNEL, "[kernel]", "entry"), make_frame(USER, "/bin/app", "main")
    assert (root.id, leaf.id) == (FRAME_ENTRY, FRAME_MAIN)
    assert stack_id((root, leaf)) == STACK
    assert Stack((root, leaf), idle=False).id == STACK
    assert stack_id((leaf, root)) != STACK
    assert stack_id(()) == EMPTY
