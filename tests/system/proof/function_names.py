"""Functions as both perf and exhume can be read, so that their counts can be put side by side.

They differ in how they say some things, not in what they saw:

- Code without a symbol is `[unknown]` in a module to perf, and module+offset to exhume: here it is the module's.
  So are perf's made-up names for jumps into libraries (`read@plt`), for which a file has no symbol.
- A function of several names has one address; which name is shown is a matter of taste: here it is the first of them.
- perf adds the version of some names (`fork@GLIBC_2.2.5`).
- A caller is known by its return address. When the call was the last instruction of a function, that address is
  already the next function's first; exhume looks one byte before it, perf does not and names the neighbour.
- While a program replaces itself (execve), its stack still ends in the old image: perf looks the address up there,
  exhume knows that image as gone. User frames of such stacks are left out.
- An address outside any module is nobody's function: it is left out.
"""

import subprocess
from bisect import bisect_left
from functools import cache
from pathlib import Path

from tests.system.proof.perf_script import UNKNOWN, PerfFrame, PerfSample

REPLACING_ITSELF = "sys_execve"
# Code, global or local; weak; and chosen when the program starts.
FUNCTION_KINDS = frozenset("TtWwi")


def perf_functions(sample: PerfSample) -> list[str]:
    """The functions of a sample, leaf first."""
    frames = list(sample.frames)
    if any(frame.in_kernel and REPLACING_ITSELF in frame.name for frame in frames):
        frames = [frame for frame in frames if frame.in_kernel]
    names = (_perf_function(frame, leaf=place == 0) for place, frame in enumerate(frames))
    return [name for name in names if name]


def _perf_function(frame: PerfFrame, leaf: bool) -> str:
    if frame.in_kernel:
        return f"{frame.name} in the kernel" if frame.name != UNKNOWN else ""
    if frame.module == UNKNOWN:
        return ""
    if frame.name == UNKNOWN or frame.name.endswith("@plt"):
        return _somewhere_in(frame.module)
    name = frame.name.partition("@")[0]
    symbols = symbols_of(frame.module)
    if not leaf and frame.offset == 0:
        name = symbols.before(name)
    return f"{symbols.first_of(name)} in {Path(frame.module).name}"


def exhume_functions(frames: list[tuple[str, str, str]]) -> list[str]:
    """The functions of a stack, leaf first; frames are (kind, module, name), leaf first."""
    if any(kind == "kernel" and REPLACING_ITSELF in name for kind, _, name in frames):
        frames = [frame for frame in frames if frame[0] == "kernel"]
    names = (_exhume_function(*frame) for frame in frames)
    return [name for name in names if name]


def _exhume_function(kind: str, module: str, name: str) -> str:
    if kind == "kernel":
        return f"{name} in the kernel" if not name.startswith("0x") else ""
    if name.startswith(f"{Path(module).name}+0x"):
        return _somewhere_in(module)
    if name == module:  # memory of no file
        return ""
    return f"{symbols_of(module).first_of(name)} in {Path(module).name}"


def _somewhere_in(module: str) -> str:
    return f"somewhere in {Path(module).name}"


class Symbols:
    """The functions of a file: which names are one address, and who is whose neighbour."""

    def __init__(self, names: dict[str, int]) -> None:
        self._address = names
        self._first: dict[int, str] = {}
        for name, address in sorted(names.items()):
            self._first.setdefault(address, name)
        self._addresses = sorted(self._first)

    def first_of(self, name: str) -> str:
        return self._first[self._address[name]] if name in self._address else name

    def before(self, name: str) -> str:
        if name not in self._address:
            return name
        place = bisect_left(self._addresses, self._address[name])
        return self._first[self._addresses[place - 1]] if place else name


@cache
def symbols_of(module: str) -> Symbols:
    names: dict[str, int] = {}
    for table, file in (("--dynamic", module), ("--debug-syms", module), ("--debug-syms", _debug_file(module))):
        # A module without a file ([vdso]) or without that table has no such names.
        reported = subprocess.run(["nm", table, file], capture_output=True, text=True, check=False).stdout
        for line in reported.splitlines():
            address, _, rest = line.partition(" ")
            kind, _, name = rest.partition(" ")
            if kind in FUNCTION_KINDS and address:
                names[name.partition("@")[0]] = int(address, 16)
    return Symbols(names)


def _debug_file(module: str) -> str:
    """Where the symbols of a stripped file lie, if they are installed: both perf and exhume read them there."""
    notes = subprocess.run(["readelf", "--notes", module], capture_output=True, text=True, check=False).stdout
    _, _, build_id = notes.partition("Build ID: ")
    digits = build_id[:40].strip()
    return f"/usr/lib/debug/.build-id/{digits[:2]}/{digits[2:]}.debug"
