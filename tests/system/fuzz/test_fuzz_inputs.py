"""Whatever a process of the node can write into a file, a name or a log line: each parser returns or refuses, in
bounded time and memory. Inputs are mutated from valid ones, with a seed, so that a failure can be repeated.

Longer with EXHUME_FUZZ_SECONDS (for each target); another sequence with EXHUME_FUZZ_SEED.
"""

import contextlib
import json
import lzma
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.collect.symbols.go_programs import Elf, function_table, module_data
from tests.fleet.inventories import node
from tests.parts import address_space, need

from exhume.collect.sources.cgroup_trace import parse_trace
from exhume.collect.symbols.kernel import load_kallsyms
from exhume.collect.symbols.parser.demangle import demangle
from exhume.collect.symbols.parser.open_file import FileRefused, OpenFile, identity_of
from exhume.collect.symbols.parser.program import unpack_program
from exhume.collect.symbols.parser.server import answer
from exhume.collect.symbols.parser.wire import HEADER_SIZE, BadReply, body_size, decode_reply, encode_reply, text
from exhume.fleet.attributes import attributes_of
from exhume.model.inventory.codec import inventory_json, inventory_of
from exhume.procfs.cgroup import parse_cgroup_stat, parse_controllers, parse_cpu_max, parse_cpu_stat, parse_pid_cgroup
from exhume.procfs.flat_keyed import parse_flat_keyed
from exhume.procfs.kmsg import parse_record
from exhume.procfs.maps import parse_maps
from exhume.procfs.mountinfo import parse_mountinfo
from exhume.procfs.pid_stat import parse_pid_stat
from exhume.procfs.pressure import parse_pressure, parse_stall_totals

SECONDS = float(os.environ.get("EXHUME_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("EXHUME_FUZZ_SEED", "20261116"))
# Of each target, at least.
CASES = 100
LONGEST_S = 5.0
MORE_MEMORY = 1 << 30

INTERESTING = (0, 1, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
TOKENS = (b"\n", b"\0", b" ", b"\t", b"-", b":", b",", b";", b"/", b"\\040", b"\xff\xfe", b"9" * 20, b"-1")


@dataclass(frozen=True)
class Target:
    """A parser, valid inputs to start from, and what it may raise on others."""

    parse: Callable[[bytes], object]
    valid: Callable[[], list[bytes]]
    refusals: tuple[type[Exception], ...] = ()


def mutated(chance: random.Random, inputs: list[bytes]) -> bytes:
    content = bytearray(chance.choice(inputs))
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(content) + 1)
        match chance.randrange(8):
            case 0 if content:
                content[at % len(content)] ^= 1 << chance.randrange(8)
            case 1:
                size = chance.choice((1, 2, 4, 8))
                number = chance.choice(INTERESTING) & (2 ** (8 * size) - 1)
                content[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))
            case 2:
                content[at:at] = chance.choice(TOKENS)
            case 3:
                del content[at : at + chance.choice((1, 8, 64, 4096))]
            case 4:
                content[at:at] = content[at : at + chance.choice((8, 64, 4096))] * chance.choice((1, 16))
            case 5:
                content[at : at + 64] = bytes(chance.randbytes(64))
            case 6:
                other = chance.choice(inputs)
                cut = chance.randrange(len(other) + 1)
                content[at:] = other[cut:]
            case _:
                del content[at:]
    return bytes(content[: 4 << 20])


@contextlib.contextmanager
def opened(content: bytes) -> Iterator[OpenFile]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        yield OpenFile(file.fileno(), identity_of(os.fstat(file.fileno())))


def in_file(read: Callable[[OpenFile], object]) -> Callable[[bytes], object]:
    """A parser of bytes from one of open files."""

    def parse(content: bytes) -> object:
        with opened(content) as file:
            return read(file)

    return parse


def read_program(file: OpenFile) -> object:
    """All that is read of a program, in the order in which the recorder asks for it."""
    try:
        arrays = answer({"kind": "program", "offsets": [0, 0x1000, 0x1234, 2**40, 2**64 - 1]}, [file])
        reply = encode_reply(arrays)
        return unpack_program(decode_reply(reply[:HEADER_SIZE], reply[HEADER_SIZE:]))
    finally:
        answer({"kind": "debug"}, [file])


def programs() -> list[bytes]:
    """A program of C with a note, a symbol table and unwind data, its stripped form, that with a link to a debug file
    and with a compressed symbol table, and one of Go."""
    compiler = need("gcc")
    with tempfile.TemporaryDirectory() as name:
        source, program = Path(name) / "a.c", Path(name) / "a"
        source.write_text(
            "".join(f"int f{n}(int x) {{ return x * {n}; }}\n" for n in range(40)) + "int main(){return f1(2);}"
        )
        subprocess.run([compiler, "-g1", "-Wl,--build-id", "-o", program, source], check=True)
        whole, debug, packed = program.read_bytes(), Path(name) / "a.debug", Path(name) / "a.xz"
        debug.write_bytes(whole)
        packed.write_bytes(lzma.compress(whole))
        subprocess.run(["strip", program], check=True)
        stripped = program.read_bytes()
        subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", program], check=True)
        linked = program.read_bytes()
        program.write_bytes(stripped)
        subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={packed}", program], check=True)
        with_table = program.read_bytes()
    go = Elf(0x200)
    go.add(".gopclntab", function_table({"main.main": 0x100, "runtime.goexit": 0x100}))
    go.add(".noptrdata", module_data(0x1000))
    return [whole, stripped, linked, with_table, go.content()]


def replies() -> list[bytes]:
    with opened(programs()[0]) as file:
        arrays = answer({"kind": "program", "offsets": [0x1139]}, [file])
    return [encode_reply(arrays), encode_reply({"refusal": text(b"malformed"), "detail": text(b"no")})]


def decode(content: bytes) -> object:
    header, body = content[:HEADER_SIZE], content[HEADER_SIZE:]
    if len(header) < HEADER_SIZE or body_size(header) != len(body):
        raise BadReply("its length")
    return unpack_program(decode_reply(header, body))


def kallsyms(content: bytes) -> object:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return load_kallsyms(file.name)


def own(*names: str) -> Callable[[], list[bytes]]:
    """Files of this process or machine, as far as they are there."""
    return lambda: [content for name in names if Path(name).exists() and (content := Path(name).read_bytes()[:65536])]


def constant(*contents: bytes) -> Callable[[], list[bytes]]:
    return lambda: list(contents)


# What the kernel alone writes may be refused by any error of a value: no process can bring it about.
KERNEL_ONLY = (ValueError, LookupError)
PRESSURE = b"some avg10=0.00 avg60=1.25 avg300=0.10 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n"
TARGETS = {
    "elf": Target(in_file(read_program), programs, (FileRefused,)),
    "parser-reply": Target(decode, replies, (BadReply, FileRefused)),
    "perf-map": Target(
        in_file(lambda file: answer({"kind": "perf-map", "offset": 0, "size": 1 << 20}, [file])),
        constant(b"7f0000001000 40 py::f:/a.py\n7f0000001040 20 LazyCompile:~g x.js:1\n"),
        (FileRefused,),
    ),
    "mangled-name": Target(
        lambda content: demangle(content.decode("utf-8", "replace")),
        constant(b"_ZNSt6vectorIiSaIiEE9push_backEOi", b"_RNvNtCs1234_7mycrate3foo", b"_ZN3foo17h0123456789abcdefE"),
    ),
    "kmsg": Target(
        parse_record,
        constant(b"6,339,5140900,-;NET: Registered PF_INET6\n SUBSYSTEM=net\n DEVICE=n2\n", b"3,1,2,c,x=1;a\\x0ab\n"),
    ),
    "mountinfo": Target(parse_mountinfo, own("/proc/self/mountinfo")),
    "maps": Target(lambda content: list(parse_maps(content.splitlines())), own("/proc/self/maps")),
    "pid-stat": Target(parse_pid_stat, own("/proc/self/stat")),
    "pid-cgroup": Target(parse_pid_cgroup, constant(b"5:memory:/docker/a\n1:name=systemd:/x\n0::/y (deleted)\n")),
    "cgroup-trace": Target(
        parse_trace,
        constant(
            b"   a-1 [000] ..... 12.345678: cgroup_mkdir: root=5 id=77 level=2 path=/docker/a b\n"
            b"CPU:0 [LOST 5 EVENTS]\n"
        ),
    ),
    "inventory": Target(
        lambda content: attributes_of(inventory_of(content)),
        lambda: [json.dumps(inventory_json(node(bootstrap=each))).encode() for each in (True, False)],
        (ValueError,),
    ),
    "kallsyms": Target(
        kallsyms,
        constant(b"ffffffff81000000 T _text\nffffffff81000100 t do_idle\nffffffffc0000000 t f\t[ext4]\n"),
        KERNEL_ONLY,
    ),
    "cgroup-stat": Target(
        parse_cgroup_stat,
        constant(b"nr_descendants 5\nnr_dying_descendants 9\nnr_dying_subsys_memory 3\n"),
        KERNEL_ONLY,
    ),
    "cgroup-cpu-stat": Target(
        parse_cpu_stat, constant(b"nr_periods 5\nnr_throttled 9\nthrottled_usec 3\nthrottled_time 3\n"), KERNEL_ONLY
    ),
    "cgroup-cpu-max": Target(parse_cpu_max, constant(b"max 100000\n", b"50000 100000\n"), KERNEL_ONLY),
    "controllers": Target(parse_controllers, own("/proc/cgroups"), KERNEL_ONLY),
    "memory-stat": Target(
        parse_flat_keyed, constant(b"cache 4096\nrss 0\ntotal_cache 8192\nMemTotal:  12 kB\n"), KERNEL_ONLY
    ),
    "pressure": Target(parse_pressure, constant(PRESSURE), KERNEL_ONLY),
    "pressure-totals": Target(parse_stall_totals, constant(PRESSURE), KERNEL_ONLY),
}


def run_cases(target: Target, seeds: range, log: Path) -> None:
    """In a child: what ends it leaves the input behind, and its seed."""
    limit = address_space() + MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    inputs = target.valid()
    for seed in seeds:
        content = mutated(random.Random(seed), inputs)
        log.write_bytes(f"{seed}\n".encode() + content)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        with contextlib.suppress(*target.refusals):
            target.parse(content)
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.parametrize("name", TARGETS)
def test_any_input_is_parsed_or_refused_in_time_and_memory(name: str, tmp_path: Path) -> None:
    target, log = TARGETS[name], tmp_path / "last-input"
    for content in target.valid():
        with contextlib.suppress(*target.refusals):
            target.parse(content)
    began, first = time.monotonic(), SEED
    while first < SEED + CASES or time.monotonic() - began < SECONDS:
        seeds = range(first, first + CASES)
        child = multiprocessing.get_context("fork").Process(target=run_cases, args=(target, seeds, log))
        child.start()
        child.join()
        if child.exitcode != 0:
            kept = Path(tempfile.gettempdir()) / f"exhume-fuzz-{name}"
            shutil.copy(log, kept)
            seed = log.read_bytes().partition(b"\n")[0].decode()
            raise AssertionError(f"{name}: ended with {child.exitcode} at seed {seed}; the input is in {kept}")
        first += CASES
    sys.stderr.write(f"{name}: {first - SEED} cases in {time.monotonic() - began:.0f} s\n")
