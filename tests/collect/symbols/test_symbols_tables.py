"""Symbol tables of ELF files, checked against an independent reader and against synthetic ones."""

import lzma
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.symbols.settled import file_frames
from tests.collect.symbols.symbol_programs import SOURCE, Compile
from tests.parts import missing, need

from exhume.collect.symbols.file_reader import Views
from exhume.collect.symbols.files import FileSymbols
from exhume.collect.symbols.locate import open_regular
from exhume.collect.symbols.mappings import AddressSpace, FileKey, Mapping, mapped_file
from exhume.collect.symbols.parser.elf import ElfFile
from exhume.collect.symbols.parser.open_file import FileRefused
from exhume.collect.symbols.parser.program import Program, load_program
from exhume.collect.symbols.parser.table import FunctionTable, RawSymbols
from exhume.procfs.host import Host


def load(path: Path) -> Program:
    file = open_regular(str(path))
    assert file is not None
    with file:
        return load_program(file)[0]


def name_at(path: Path, program: Program, offset: int) -> str | None:
    index = int(program.find(np.array([offset], np.uint64))[0])
    if index < 0:
        return None
    file = open_regular(str(path)) if program.needs_file else None
    try:
        return program.name(index, file).decode()
    finally:
        if file is not None:
            file.close()


def real_files() -> list[Path]:
    with Path("/proc/self/maps").open() as maps:
        mapped = {Path(line.split(None, 5)[5].strip()) for line in maps if "/" in line and " r-xp " in line}
    wanted = {
        Path(sys.executable).resolve(),
        *(path for path in mapped if "libc.so" in path.name or "ld-linux" in path.name),
    }
    return sorted(path for path in wanted if path.is_file())


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.name)
def test_real_files_agree_with_pyelftools(path: Path) -> None:
    """Every function starts where the other reader says, and is not found a byte beyond its end unless another
    one is there."""
    program = load(path)
    with path.open("rb") as file:
        elf = ELFFile(file)
        section = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
        functions = [
            symbol
            for symbol in section.iter_symbols()
            if symbol["st_info"]["type"] in ("STT_FUNC", "STT_LOOS")
            and symbol["st_shndx"] != "SHN_UNDEF"
            and symbol["st_size"]
        ]
        assert functions
        spans = {}
        for symbol in functions[:: max(1, len(functions) // 2000)]:
            offset = next(elf.address_offsets(symbol["st_value"]))
            spans.setdefault(offset, set()).add(symbol.name.partition("@")[0])
        all_names = {}
        for symbol in functions:
            all_names.setdefault(symbol["st_value"], set()).add(symbol.name)
        for symbol in functions[:: max(1, len(functions) // 2000)]:
            offset = next(elf.address_offsets(symbol["st_value"]))
            assert name_at(path, program, offset) in all_names[symbol["st_value"]]


@pytest.mark.needs("gcc")
def test_32_bit_files_are_read(compile_c: Compile) -> None:
    try:
        library = compile_c(
            "int thirty_two(int x) { return x; }", "-m32", "-shared", "-fPIC", "-nostdlib", name="lib32.so"
        )
    except subprocess.CalledProcessError:
        missing("a gcc that can build 32-bit code")
    with library.open("rb") as file:
        elf = ELFFile(file)
        assert elf.elfclass == 32
        symbol = elf.get_section_by_name(".symtab").get_symbol_by_name("thirty_two")[0]
        offset = next(elf.address_offsets(symbol["st_value"]))
    program = load(library)
    assert name_at(library, program, offset) == "thirty_two"
    assert name_at(library, program, offset + symbol["st_size"]) is None


@pytest.mark.needs("gcc")
def test_mapping_symbols_of_arm_name_nothing(compile_c: Compile) -> None:
    source = """
    __asm__(".text\\n.type work, @function\\n.globl work\\nwork: nop\\n\\"$x\\": nop\\n nop\\n\\"$d\\": nop\\n"
            ".size work, . - work\\n\\"$x.1\\": nop; nop");
    """
    library = compile_c(source, "-shared", "-fPIC", "-nostdlib", name="libarm.so")
    with library.open("r+b") as file:
        file.seek(18)
        file.write(struct.pack("<H", 183))  # aarch64
    with library.open("rb") as file:
        elf = ELFFile(file)
        names = {symbol.name for symbol in elf.get_section_by_name(".symtab").iter_symbols()}
        work = next(elf.address_offsets(elf.get_section_by_name(".symtab").get_symbol_by_name("work")[0]["st_value"]))
    assert {"$x", "$d"} <= names
    program = load(library)
    assert [name_at(library, program, work + i) for i in range(5)] == ["work"] * 4 + [None]


def stripped_with_debug_file(compile_c: Compile, tmp_path: Path) -> tuple[Path, Path, int]:
    program = compile_c(SOURCE, "-Wl,--build-id=sha1")
    debug = tmp_path / "program.debug"
    with program.open("rb") as file:
        elf = ELFFile(file)
        address = elf.get_section_by_name(".symtab").get_symbol_by_name("hidden_beta")[0]["st_value"]
        offset = next(elf.address_offsets(address))
    subprocess.run([need("objcopy"), "--only-keep-debug", program, debug], check=True)
    subprocess.run([need("strip"), program], check=True)
    return program, debug, offset


def name_below(root: Path, program: Path, offset: int) -> str:
    """The name at an offset of a program, mapped by a process that has another root directory."""
    proc = root.parent / "proc"
    (proc / "7").mkdir(parents=True, exist_ok=True)
    if not (proc / "7/root").is_symlink():
        (proc / "7/root").symlink_to(root)
    status = program.stat()
    inside = f"/{program.relative_to(root)}"
    key = FileKey(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino, 0, inside)
    views = [(AddressSpace(7), Mapping(0, status.st_size, 0, mapped_file(key)))]
    return file_frames(FileSymbols(Host(proc=proc)), views, [offset])[0].name


@pytest.mark.needs("gcc")
def test_a_debug_file_is_found_by_build_id(compile_c: Compile, tmp_path: Path) -> None:
    program, debug, offset = stripped_with_debug_file(compile_c, tmp_path)
    home = tmp_path / "root"
    home.mkdir()
    moved = Path(shutil.copy(program, home / "program"))
    assert name_below(home, moved, offset) == f"program+0x{offset:x}"
    with program.open("rb") as file:
        build_id = ELFFile(file).get_section_by_name(".note.gnu.build-id").data()[16:].hex()
    installed = home / "usr/lib/debug/.build-id" / build_id[:2]
    installed.mkdir(parents=True)
    shutil.copy(debug, installed / f"{build_id[2:]}.debug")
    assert name_below(home, moved, offset) == "hidden_beta"


@pytest.mark.needs("gcc")
def test_a_debug_file_is_found_by_its_link_and_only_if_it_belongs(compile_c: Compile, tmp_path: Path) -> None:
    program, debug, offset = stripped_with_debug_file(compile_c, tmp_path)
    subprocess.run([need("objcopy"), f"--add-gnu-debuglink={debug}", program], check=True)
    home = tmp_path / "root"
    (home / "bin").mkdir(parents=True)
    moved = Path(shutil.copy(program, home / "bin/program"))
    (home / "usr/lib/debug/bin").mkdir(parents=True)
    installed = home / "usr/lib/debug/bin/program.debug"
    shutil.copy(debug, installed)
    assert name_below(home, moved, offset) == "hidden_beta"
    other = compile_c(SOURCE.replace("hidden_beta", "impostor"), "-Wl,--build-id=sha1", name="other")
    shutil.copy(other, installed)
    assert name_below(home, moved, offset) == f"program+0x{offset:x}"


@pytest.mark.needs("gcc")
def test_the_packed_symbols_of_a_stripped_file_are_read(compile_c: Compile, tmp_path: Path) -> None:
    program, debug, offset = stripped_with_debug_file(compile_c, tmp_path)
    packed = tmp_path / "packed.xz"
    packed.write_bytes(lzma.compress(debug.read_bytes()))
    subprocess.run([need("objcopy"), "--add-section", f".gnu_debugdata={packed}", program], check=True)
    assert name_at(program, load(program), offset) == "hidden_beta"


@given(st.binary(max_size=300))
def test_rubbish_is_no_elf_file(content: bytes) -> None:
    with pytest.raises(FileRefused):
        ElfFile(lambda offset, size: content[offset : offset + size])


@given(st.data())
def test_damaged_files_never_break_the_reader(data: st.DataObject) -> None:
    """Any bytes changed or cut off: an answer, or a refusal, but no crash."""
    content = bytearray(Path(sys.executable).resolve().read_bytes()[:20_000])
    for _ in range(data.draw(st.integers(1, 12))):
        content[data.draw(st.integers(4, 63) | st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        elf = ElfFile(lambda offset, size: damaged[offset : offset + size])
        symbols, _ = elf.functions()
        elf.build_id()
        elf.debug_link()
        FunctionTable.of(symbols).find(np.arange(0, 1 << 20, 4096, dtype=np.uint64))
    except FileRefused:
        pass


SYMBOLS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25), st.integers(0, 3)), max_size=12)


@given(SYMBOLS, st.integers(0, 1 << 40))
def test_an_address_gets_the_innermost_symbol_that_covers_it(rows: list[tuple[int, int, int]], base: int) -> None:
    sized = [(start, size, rank) for start, size, rank in rows if size]
    symbols = RawSymbols(
        np.array([base + start for start, _, _ in sized], np.uint64),
        np.array([size for _, size, _ in sized], np.uint32),
        np.full(len(sized), 4096, np.uint16),
        np.array([8 + rank for _, _, rank in sized], np.uint8),
        np.arange(len(sized), dtype=np.uint32),
    )
    table = FunctionTable.of(symbols)
    best = {start: max(rank for s, _, rank in sized if s == start) for start, _, _ in sized}
    found = table.find(np.arange(base, base + 100, dtype=np.uint64)).tolist()
    for address, index in enumerate(found):
        covering = [
            (start, name)
            for name, (start, size, rank) in enumerate(sized)
            if start <= address < start + size and rank == best[start]
        ]
        if index < 0:
            assert not covering
        else:
            assert (sized[int(table.names[index])][0], int(table.names[index])) in covering
            assert sized[int(table.names[index])][0] == max(start for start, _ in covering)


def test_unsized_code_reaches_to_the_next_symbol_and_labels_are_no_functions() -> None:
    starts, sizes, ranks = [100, 200, 250, 300, 5000], [0, 100, 0, 0, 10], [4, 12, 0, 4, 12]
    table = FunctionTable.of(
        RawSymbols(
            np.array(starts, np.uint64),
            np.array(sizes, np.uint32),
            np.array([4096, 4096, 4096, 50, 4096], np.uint16),
            np.array(ranks, np.uint8),
            np.array(starts, np.uint32),
        )
    )
    wanted = {
        99: -1,
        100: 100,
        199: 100,
        200: 200,
        260: 200,
        299: 200,
        300: 300,
        349: 300,
        350: -1,
        5009: 5000,
        5010: -1,
    }
    found = table.find(np.array(list(wanted), np.uint64)).tolist()
    assert [int(table.names[index]) if index >= 0 else -1 for index in found] == list(wanted.values())


def _many_functions(compile_c: Compile, tmp_path: Path, copies: int) -> tuple[list[Views], int]:
    """Copies of a library with many functions, as one process maps them, and the offset of function_7."""
    source = "\n".join(f"int function_{i}(int x) {{ return x + {i}; }}" for i in range(500))
    library = compile_c(source, "-shared", "-fPIC", "-O0", name="libmany.so")
    with library.open("rb") as file:
        elf = ELFFile(file)
        address = elf.get_section_by_name(".symtab").get_symbol_by_name("function_7")[0]["st_value"]
        offset = next(elf.address_offsets(address))
    space = AddressSpace(os.getpid())
    views: list[Views] = []
    for i in range(copies):
        copy = Path(shutil.copy(library, tmp_path / f"libmany{i}.so"))
        status = copy.stat()
        key = FileKey(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino, 0, str(copy))
        views.append([(space, Mapping(0, 1 << 20, 0, mapped_file(key)))])
    return views, offset


@pytest.mark.needs("gcc")
def test_tables_are_held_within_their_budget(compile_c: Compile, tmp_path: Path) -> None:
    budget = 100_000
    symbols = FileSymbols(Host(), budget)
    files, offset = _many_functions(compile_c, tmp_path, 20)
    for views in files:
        assert [frame.name for frame in file_frames(symbols, views, [offset])] == ["function_7"]
        assert symbols.nbytes <= budget + 25_000


@pytest.mark.needs("gcc")
def test_a_budget_too_small_for_what_runs_grows_within_bounds(compile_c: Compile, tmp_path: Path) -> None:
    now = [0.0]
    files, offset = _many_functions(compile_c, tmp_path, 20)
    alone = FileSymbols(Host())
    file_frames(alone, files[0], [offset])
    # Room for two thirds of them.
    budget = alone.nbytes * 13
    symbols = FileSymbols(Host(), budget, clock=lambda: now[0])
    reads = []
    submit = symbols.queue.submit
    symbols.queue.submit = lambda *job: reads.append(job) or submit(*job)
    rounds = []
    for _ in range(8):
        reads.clear()
        for views in files:
            now[0] += 0.1
            assert [frame.name for frame in file_frames(symbols, views, [offset])] == ["function_7"]
        rounds.append(len(reads))
        assert symbols.nbytes <= 2 * budget + 25_000
    assert rounds[0] >= 20 and rounds[1] > 0
    assert rounds[-1] == 0, "all that runs is known now, and nothing is read again"


@pytest.mark.needs("gcc")
def test_a_budget_does_not_grow_for_programs_that_came_and_went(compile_c: Compile, tmp_path: Path) -> None:
    now = [0.0]
    files, offset = _many_functions(compile_c, tmp_path, 20)
    budget = 100_000
    symbols = FileSymbols(Host(), budget, clock=lambda: now[0])
    for views in files * 2:
        now[0] += 10.0
        file_frames(symbols, views, [offset])
        assert symbols.nbytes <= budget + 25_000
