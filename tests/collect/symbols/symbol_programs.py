"""Real programs for the symboliser: compiled on the spot, and run so that they have real addresses."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.parts import need

from exhume.collect.symbols.mappings import AddressSpace, FileKey, Mapping, mapped_file

SOURCE = """
#include <stdio.h>
#include <unistd.h>
#define FUNCTION __attribute__((noinline, aligned(256)))
FUNCTION int alpha(int x) { __asm__ volatile("nop"); return x * 3 + 1; }
static FUNCTION int hidden_beta(int x) { __asm__ volatile("nop"); return x * 5 + 2; }
FUNCTION int gamma_last(int x) { __asm__ volatile("nop"); return alpha(x) + hidden_beta(x); }
int main(int argc, char **argv) {
    printf("alpha=%p hidden_beta=%p gamma_last=%p main=%p\\n", (void *)alpha, (void *)hidden_beta,
           (void *)gamma_last, (void *)main);
    fflush(stdout);
    if (argc < 100) pause();
    return gamma_last(argc);
}
"""


@dataclass
class Running:
    """A program that runs, and the addresses it printed."""

    pid: int
    addresses: dict[str, int]


@contextmanager
def running(*command: str | Path, ready: bool = True) -> Iterator[Running]:
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline() if ready else ""
            pairs = (pair.split("=") for pair in line.split() if "=" in pair)
            yield Running(process.pid, {name: int(value, 16) for name, value in pairs})
        finally:
            process.kill()


Compile = Callable[..., Path]


@pytest.fixture
def compile_c(tmp_path: Path) -> Compile:
    """compile_c(source, *flags, name=...) -> the program."""

    def build(source: str, *flags: str, name: str = "program", compiler: str = "gcc") -> Path:
        suffix = ".cc" if compiler == "g++" else ".c"
        code = tmp_path / f"{name}{suffix}"
        code.write_text(source)
        output = tmp_path / name
        subprocess.run([need(compiler), "-O1", "-o", output, code, *flags], check=True, capture_output=True)
        return output

    return build


def map_file(  # noqa: PLR0917 - in the order of the kernel's record
    space: AddressSpace,
    start: int,
    end: int,
    offset: int,
    major: int,
    minor: int,
    inode: int,
    generation: int,
    path: str,
) -> None:
    """Tell a space of one executable mapping, as the kernel's record does."""
    space.add([Mapping(start, end, offset, mapped_file(FileKey(major, minor, inode, generation, path)))])


def mapped(path: Path) -> list[tuple[AddressSpace, Mapping]]:
    """Our own process, as if it mapped a whole file: offsets in the file are what is looked up."""
    status = path.stat()
    key = FileKey(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino, 0, str(path))
    return [(AddressSpace(os.getpid()), Mapping(0, status.st_size, 0, mapped_file(key)))]
