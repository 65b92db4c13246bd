"""Kernel addresses: named from kallsyms, bounded by data and by the ends of modules."""

from pathlib import Path

import numpy as np
import pytest
from tests.parts import missing

from exhume.collect.symbols.kernel import KernelSymbols, load_kallsyms
from exhume.collect.symbols.symbolizer import Symbolizer
from exhume.procfs.host import Host

KALLSYMS = """\
0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_debug_store
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000100 t __pfx_do_work
ffffffff81000110 T do_work
ffffffff81000200 W weak_work
ffffffff81000300 D jiffies
ffffffff81000310 d some_table
ffffffff81000400 t after_data
ffffffff81000500 T _etext
ffffffffc0100000 t ext4_read\t[ext4]
ffffffffc0100200 t ext4_last\t[ext4]
ffffffffc0200000 d ext4_data\t[ext4]
ffffffffc0080000 t nf_hook\t[nf_tables]
ffffffffc0300000 t bpf_prog_1234_trace\t[bpf]
ffffffffc0300200 t bpf_prog_5678_count\t[bpf]
"""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def host_with(tmp_path: Path, text: str = KALLSYMS, kptr_restrict: str = "1") -> Host:
    (tmp_path / "sys/kernel").mkdir(parents=True, exist_ok=True)
    (tmp_path / "sys/kernel/kptr_restrict").write_text(kptr_restrict + "\n")
    (tmp_path / "kallsyms").write_text(text)
    return Host(proc=tmp_path)


def names(symbols: KernelSymbols, *addresses: int) -> list[tuple[str, str]]:
    return [(frame.module, frame.name) for frame in symbols.frames(np.array(addresses, np.uint64))]


def test_a_function_is_named_where_a_section_begins_or_ends(tmp_path: Path) -> None:
    """As on a 5.4 without padding between its sections."""
    text = "".join(
        f"ffffffff8155daf0 {kind} {name}\n"
        for kind, name in (("t", "default_idle"), ("T", "__cpuidle_text_start"), ("T", "__sched_text_end"))
    )
    text += "ffffffff8155db00 T __lock_text_start\n"
    symbols = KernelSymbols(host_with(tmp_path, text))
    assert names(symbols, 0xFFFFFFFF8155DAF4, 0xFFFFFFFF8155DB04) == [
        ("[kernel]", "default_idle"),
        ("[kernel]", "__lock_text_start"),
    ]


def test_functions_modules_and_bpf_programs_are_named(tmp_path: Path) -> None:
    symbols = KernelSymbols(host_with(tmp_path))
    assert names(symbols, 0xFFFFFFFF81000150, 0xFFFFFFFF81000200, 0xFFFFFFFF810004FF) == [
        ("[kernel]", "do_work"),
        ("[kernel]", "weak_work"),
        ("[kernel]", "after_data"),
    ]
    assert names(symbols, 0xFFFFFFFFC0100010, 0xFFFFFFFFC0080001, 0xFFFFFFFFC0300210) == [
        ("[ext4]", "ext4_read"),
        ("[nf_tables]", "nf_hook"),
        ("[bpf]", "bpf_prog_5678_count"),
    ]
    assert {frame.kind for frame in symbols.frames(np.array([0xFFFFFFFF81000150], np.uint64))} == {"kernel"}


def test_the_padding_before_a_function_is_part_of_it(tmp_path: Path) -> None:
    """There lies the address before a function that was interrupted at its first instruction."""
    symbols = KernelSymbols(host_with(tmp_path))
    assert names(symbols, 0xFFFFFFFF810000FF, 0xFFFFFFFF81000100, 0xFFFFFFFF8100010F, 0xFFFFFFFF81000110) == [
        ("[kernel]", "startup_64"),
        *[("[kernel]", "do_work")] * 3,
    ]


def test_of_several_names_for_one_address_the_last_is_taken(tmp_path: Path) -> None:
    assert names(KernelSymbols(host_with(tmp_path)), 0xFFFFFFFF81000004) == [("[kernel]", "startup_64")]


@pytest.mark.parametrize(
    "address",
    [
        0xFFFFFFFF80FFFFFF,  # before everything
        0xFFFFFFFF81000308,  # data
        0xFFFFFFFF81000318,
        0xFFFFFFFF81003000,  # beyond the kernel's text
        0xFFFFFFFFC0102000,  # beyond the last function of a module
        0xFFFFFFFFC0200010,  # a module's data
        0xFFFFFFFFC0082000,
        0xFFFFFFFFC0320000,  # beyond the last BPF program
        0x0000000000001000,  # an offset of per-CPU data
        0x5000,
        0xFFFFFFFFFFFFFFFF,
    ],
)
def test_what_is_no_function_keeps_its_address(tmp_path: Path, address: int) -> None:
    assert names(KernelSymbols(host_with(tmp_path)), address) == [("[kernel]", f"0x{address:x}")]


@pytest.mark.parametrize(("restrict", "remedy"), [("1", "CAP_SYSLOG"), ("2", "kernel.kptr_restrict to 1")])
def test_hidden_addresses_are_reported_with_their_remedy(tmp_path: Path, restrict: str, remedy: str) -> None:
    zeros = "0000000000000000 T _text\n0000000000000000 t do_work\n"
    symbolizer = Symbolizer(host_with(tmp_path, zeros, restrict))
    (frame,) = symbolizer.kernel(np.array([0xFFFFFFFF81000150], np.uint64))
    assert frame.name == "0xffffffff81000150"
    (missing,) = symbolizer.missing
    assert missing.source == "kernel symbols"
    assert remedy in missing.remedy


def test_a_kernel_without_kallsyms_is_reported(tmp_path: Path) -> None:
    symbolizer = Symbolizer(Host(proc=tmp_path))
    assert symbolizer.kernel(np.array([0xFFFFFFFF81000150], np.uint64))[0].name == "0xffffffff81000150"
    assert "CONFIG_KALLSYMS" in str(symbolizer.missing[0])


def test_an_unknown_address_reloads_at_most_once_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    symbols = KernelSymbols(host_with(tmp_path), clock)
    new_code = 0xFFFFFFFFC0400010
    assert names(symbols, new_code) == [("[kernel]", f"0x{new_code:x}")]
    host_with(tmp_path, KALLSYMS + "ffffffffc0400000 t fresh\t[fresh]\n")
    clock.now += 59
    assert names(symbols, new_code) == [("[kernel]", f"0x{new_code:x}")]
    clock.now += 2
    assert names(symbols, new_code) == [("[fresh]", "fresh")]


def test_an_address_that_stays_unknown_does_not_reload_again_and_again(tmp_path: Path) -> None:
    clock = Clock()
    symbols = KernelSymbols(host_with(tmp_path), clock)
    nowhere, later = 0xFFFFFFFFC0500010, 0xFFFFFFFFC0600010
    names(symbols, nowhere)
    clock.now += 61
    names(symbols, nowhere)
    host_with(tmp_path, KALLSYMS + "ffffffffc0500000 t late\t[late]\nffffffffc0600000 t later\t[later]\n")
    clock.now += 121
    assert names(symbols, nowhere)[0][1].startswith("0x")
    assert names(symbols, later) == [("[later]", "later")]
    assert names(symbols, nowhere) == [("[late]", "late")]


def test_reloads_that_name_nothing_become_rare(tmp_path: Path) -> None:
    clock = Clock()
    symbols = KernelSymbols(host_with(tmp_path), clock)
    names(symbols, 0xFFFFFFFFC0500000)
    begun = symbols.generation
    for number in range(120):
        clock.now += 61
        names(symbols, 0xFFFFFFFFC0500000 + number)
    assert symbols.generation - begun <= 8, "two hours of an unknown address a minute"
    host_with(tmp_path, KALLSYMS + "ffffffffc0600000 t later\t[later]\n")
    clock.now += 61
    assert names(symbols, 0xFFFFFFFFC0600010) == [("[kernel]", "0xffffffffc0600010")]
    (tmp_path / "modules").write_text("later 16384 0 - Live 0xffffffffc0600000\n")
    assert names(symbols, 0xFFFFFFFFC0600010) == [("[later]", "later")], "a module was loaded"
    for number in range(20):
        clock.now += 61
        names(symbols, 0xFFFFFFFFC0500000 + number)
    host_with(tmp_path, KALLSYMS + "ffffffffc0700000 t later\t[later]\n")
    (tmp_path / "modules").write_text("later 16384 3 - Live 0xffffffffc0700000\n")
    clock.now += 61
    assert names(symbols, 0xFFFFFFFFC0700010) == [("[later]", "later")], "a module was loaded again, elsewhere"
    begun = symbols.generation
    (tmp_path / "modules").write_text("later 16384 9 - Live 0xffffffffc0700000\n")
    clock.now += 61
    names(symbols, 0xFFFFFFFFC0500000)
    assert symbols.generation == begun, "that it is used more often says nothing"


def test_a_change_that_was_announced_is_seen_at_once(tmp_path: Path) -> None:
    clock = Clock()
    symbols = KernelSymbols(host_with(tmp_path), clock)
    address = 0xFFFFFFFFC0300210
    assert names(symbols, address) == [("[bpf]", "bpf_prog_5678_count")]
    host_with(tmp_path, KALLSYMS.replace("5678_count", "9abc_drop"))
    symbols.changed()
    clock.now += 2
    assert names(symbols, address) == [("[bpf]", "bpf_prog_9abc_drop")]


def test_no_addresses_are_no_frames(tmp_path: Path) -> None:
    assert KernelSymbols(host_with(tmp_path)).frames(np.empty(0, np.uint64)) == []


def test_chunks_are_joined_without_a_seam(tmp_path: Path) -> None:
    """More text than is read at a time, with modules: every symbol comes back."""
    lines = [
        f"{0xFFFFFFFF81000000 + i * 64:016x} t function_number_{i}" + (f"\t[module_{i // 1000}]" if i > 9000 else "")
        for i in range(20_000)
    ]
    (tmp_path / "kallsyms").write_text("\n".join(lines) + "\n")
    table = load_kallsyms(str(tmp_path / "kallsyms"))
    addresses = np.array([0xFFFFFFFF81000000 + i * 64 + 3 for i in range(20_000)], np.uint64)
    found = [table.symbol(int(at)) for at in table.find(addresses)]
    assert [name for _, name in found] == [f"function_number_{i}" for i in range(20_000)]
    assert found[9001][0] == "[module_9]" and found[9000][0] == "[kernel]"


@pytest.mark.root
def test_the_real_kernel_agrees_with_a_plain_reading_of_kallsyms() -> None:
    code: dict[int, set[str]] = {}
    everything: set[int] = set()
    with Path("/proc/kallsyms").open() as kallsyms:
        for line in kallsyms:
            address, kind, name = line.split()[:3]
            everything.add(int(address, 16))
            if kind in "tTwW":
                code.setdefault(int(address, 16), set()).add(name.removeprefix("__pfx_"))
    if len(everything) == 1:
        missing("the addresses of the kernel (kernel.kptr_restrict)")
    starts = np.array(sorted(everything), np.uint64)
    starts = starts[starts >= np.uint64(1 << 63)][:: max(1, len(starts) // 5000)]
    for start, frame in zip(starts.tolist(), Symbolizer(Host()).kernel(starts), strict=True):
        assert frame.name in code.get(start, {f"0x{start:x}"})
