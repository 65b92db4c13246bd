"""Stripped Go programs are named by the table that their runtime carries, or not at all."""

import os
import shutil
import struct
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.symbols.go_programs import (
    ARM64,
    CODE_AT,
    CODE_OFFSET,
    FUNCTIONS,
    GO_1_16,
    GO_1_18,
    GO_1_20,
    I386,
    X86,
    Elf,
    function_table,
    module_data,
    module_text_address,
    relocation,
)
from tests.collect.symbols.settled import file_frames
from tests.collect.symbols.symbol_programs import SOURCE, Compile, mapped
from tests.parts import missing, need, sampled

from exhume.collect.symbols.file_reader import FileReader
from exhume.collect.symbols.files import DEFAULT_BUDGET, FileSymbols
from exhume.collect.symbols.locate import open_regular
from exhume.collect.symbols.owners import RefusalLog
from exhume.collect.symbols.parser.elf import ElfFile
from exhume.collect.symbols.parser.gopclntab import read_go_functions
from exhume.collect.symbols.parser.open_file import MALFORMED, FileRefused
from exhume.collect.symbols.parser.program import load_program
from exhume.procfs.host import Host

GO_CODE = sum(FUNCTIONS.values())
STARTUP = 0x100  # what the C linker puts before Go's code
RELA = 4


def names_at(path: Path, offsets: list[int]) -> list[str]:
    return [frame.name for frame in file_frames(FileSymbols(Host()), mapped(path), offsets)]


def write(tmp_path: Path, elf: Elf) -> Path:
    path = tmp_path / "program"
    path.write_bytes(elf.content())
    return path


def assert_all_named(path: Path, first: int = CODE_OFFSET) -> None:
    """Every byte of every function has its name, and the bytes around them have none."""
    expected = [name for name, size in FUNCTIONS.items() for _ in range(size)]
    assert names_at(path, list(range(first, first + GO_CODE))) == expected
    around = [first - 1, first + GO_CODE]
    assert names_at(path, around) == [f"program+0x{offset:x}" for offset in around]


@pytest.mark.parametrize("magic", sampled([GO_1_16, GO_1_18, GO_1_20]))
@pytest.mark.parametrize(("machine", "pointer", "quantum"), [(X86, 8, 1), (ARM64, 8, 4), (I386, 4, 1)])
def test_every_form_of_the_table_is_read(tmp_path: Path, magic: int, machine: int, pointer: int, quantum: int) -> None:
    elf = Elf(GO_CODE + 32, machine, wide=pointer == 8)
    elf.add(".gopclntab", function_table(FUNCTIONS, magic=magic, pointer=pointer, quantum=quantum))
    assert_all_named(write(tmp_path, elf))


def with_module(elf: Elf) -> None:
    elf.add(".gopclntab", function_table(FUNCTIONS, reported=0))
    elf.add(".go.module", module_data(CODE_AT + STARTUP))


def with_relocated_module(elf: Elf) -> None:
    elf.add(".gopclntab", function_table(FUNCTIONS, reported=0))
    at = module_text_address(elf.add(".go.module", module_data(0)))
    elf.add(".rela.dyn", relocation(at - 8, 1) + relocation(at, CODE_AT + STARTUP) + relocation(at + 8, 2), RELA)


def with_relocated_header(elf: Elf) -> None:
    at = elf.add(".data.rel.ro.gopclntab", function_table(FUNCTIONS, reported=0))
    elf.add(".rela.dyn", relocation(at, 1) + relocation(at + 8 + 2 * 8, CODE_AT + STARTUP), RELA)


def among_other_data(elf: Elf) -> None:
    decoy = struct.pack("<IHBB", GO_1_20, 0, 1, 8) + b"\xff" * 120
    table = function_table(FUNCTIONS, text=CODE_AT + STARTUP)
    elf.add(".data.rel.ro", bytes(8) + decoy + bytes((1 << 20) - 8 - len(decoy) - 64) + table + bytes(100))
    elf.add(".go.buildinfo", bytes(32))


@pytest.mark.parametrize("made", sampled([with_module, with_relocated_module, with_relocated_header, among_other_data]))
def test_functions_count_from_where_go_code_starts_not_from_where_code_starts(
    tmp_path: Path, made: Callable[[Elf], None]
) -> None:
    elf = Elf(STARTUP + GO_CODE + 200)
    made(elf)
    assert_all_named(write(tmp_path, elf), CODE_OFFSET + STARTUP)


def test_without_a_word_about_where_go_code_starts_it_must_fill_the_section(tmp_path: Path) -> None:
    fitting, loose = Elf(GO_CODE + 1), Elf(STARTUP + GO_CODE + 1)
    for elf in (fitting, loose):
        elf.add(".gopclntab", function_table(FUNCTIONS, reported=0))
    assert_all_named(write(tmp_path, fitting))
    assert names_at(write(tmp_path, loose), [CODE_OFFSET + 16]) == [f"program+0x{CODE_OFFSET + 16:x}"]


def test_a_table_that_reaches_beyond_the_code_names_nothing(tmp_path: Path) -> None:
    elf = Elf(GO_CODE - 1)
    elf.add(".gopclntab", function_table(FUNCTIONS))
    assert names_at(write(tmp_path, elf), [CODE_OFFSET]) == [f"program+0x{CODE_OFFSET:x}"]


def test_a_record_of_another_function_names_nothing(tmp_path: Path) -> None:
    table = bytearray(function_table(FUNCTIONS))
    record = table.index(b"\xaa" * 36, table.index(b"\xaa" * 36) + 36) - 8  # the second function's
    table[record : record + 4] = struct.pack("<I", 97)
    elf = Elf(GO_CODE)
    elf.add(".gopclntab", bytes(table))
    first, second, third = names_at(write(tmp_path, elf), [CODE_OFFSET, CODE_OFFSET + 100, CODE_OFFSET + 112])
    assert (first, third) == ("internal/cpu.Initialize", "main.(*Mill[...]).grind")
    assert second == f"program+0x{CODE_OFFSET + 96:x}"


def test_a_hundred_thousand_functions_take_eight_bytes_each(tmp_path: Path) -> None:
    functions = {f"k8s.io/kubernetes/pkg/kubelet.function{i}": 64 for i in range(100_000)}
    elf = Elf(64 * len(functions))
    elf.add(".gopclntab", function_table(functions))
    file = open_regular(str(write(tmp_path, elf)))
    assert file is not None
    with file:
        tracemalloc.start()
        try:
            program, _ = load_program(file)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert program.needs_file
        assert program.nbytes < 8 * len(functions) + 1000 < DEFAULT_BUDGET / 10
        assert peak < 4 * program.nbytes
        wanted = np.array([CODE_OFFSET + 64 * 77_777 + 63], np.uint64)
        assert program.name(int(program.find(wanted)[0]), file) == b"k8s.io/kubernetes/pkg/kubelet.function77777"


def test_a_function_whose_name_is_out_of_reach_still_has_one_frame(tmp_path: Path) -> None:
    elf = Elf(GO_CODE)
    elf.add(".gopclntab", function_table(FUNCTIONS))
    path = write(tmp_path, elf)
    now = 0.0
    symbols, views = FileSymbols(Host(), clock=lambda: now), mapped(path)
    offsets = [CODE_OFFSET + 96, CODE_OFFSET + 111]
    assert [frame.name for frame in file_frames(symbols, views, [CODE_OFFSET])] == ["internal/cpu.Initialize"]
    path.rename(tmp_path / "elsewhere")
    assert [frame.name for frame in file_frames(symbols, views, offsets)] == [f"program+0x{offsets[0]:x}"] * 2
    _, numbers = symbols.functions(views[0][1].file, np.array(offsets, np.uint64))
    assert numbers[0] == numbers[1] >= 0
    (tmp_path / "elsewhere").rename(path)
    now = 10.0
    assert [frame.name for frame in file_frames(symbols, views, offsets)] == ["runtime.goexit.abi0"] * 2


@pytest.mark.parametrize("refused", [False, True])
def test_files_of_one_owner_are_requested_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    asked: list[int] = []
    ask = FileReader.ask

    def counted(self, request, files, **how):
        if request["kind"] == "names":
            asked.append(len(files))
            if refused and len(files) > 1:
                raise FileRefused(MALFORMED)
        return ask(self, request, files, **how)

    monkeypatch.setattr(FileReader, "ask", counted)
    log = RefusalLog()
    symbols = FileSymbols(Host(), refusals=log)
    programs = []
    for number in range(3):
        elf = Elf(GO_CODE)
        elf.add(".gopclntab", function_table(FUNCTIONS))
        (tmp_path / str(number)).mkdir()
        programs.append(mapped(write(tmp_path / str(number), elf)))
        file_frames(symbols, programs[-1], [CODE_OFFSET])
    for _ in range(3):
        names = [symbols.frames(views, [CODE_OFFSET + 96])[0].name for views in programs]
        symbols.poll()
        symbols.queue.wait(60.0)
    assert names == ["runtime.goexit.abi0"] * 3
    assert asked == ([3, 1, 1, 1] if refused else [3])
    assert not log.take()
    symbols.queue.close()


@pytest.mark.needs("objcopy")
def test_go_functions_come_before_dynamic_symbols_and_these_before_the_nameless(
    compile_c: Compile, tmp_path: Path
) -> None:
    program = compile_c(SOURCE, "-rdynamic")
    with program.open("rb") as file:
        elf = ELFFile(file)
        symbols = {symbol.name: symbol for symbol in elf.get_section_by_name(".symtab").iter_symbols()}
        start, size = symbols["alpha"]["st_value"], symbols["alpha"]["st_size"]
        at = {
            name: next(elf.address_offsets(symbols[name]["st_value"]))
            for name in ("alpha", "gamma_last", "hidden_beta")
        }
    (tmp_path / "table").write_bytes(function_table({"main.alpha": size}, text=start))
    subprocess.run([need("strip"), program], check=True)
    subprocess.run([need("objcopy"), "--add-section", f".gopclntab={tmp_path / 'table'}", program], check=True)
    inside = [at["alpha"] + 1, at["gamma_last"] + 1, at["hidden_beta"] + 1]
    assert names_at(program, inside) == ["main.alpha", "gamma_last", f"program+0x{at['hidden_beta']:x}"]


@pytest.mark.needs("objcopy")
def test_a_full_symbol_table_is_preferred(compile_c: Compile, tmp_path: Path) -> None:
    program = compile_c(SOURCE)
    with program.open("rb") as file:
        elf = ELFFile(file)
        symbol = elf.get_section_by_name(".symtab").get_symbol_by_name("alpha")[0]
        offset = next(elf.address_offsets(symbol["st_value"]))
    (tmp_path / "table").write_bytes(function_table({"main.alpha": symbol["st_size"]}, text=symbol["st_value"]))
    subprocess.run([need("objcopy"), "--add-section", f".gopclntab={tmp_path / 'table'}", program], check=True)
    assert names_at(program, [offset]) == ["alpha"]


# The first is small, and a package of Debian's.
GO_PROGRAMS = ("pup", "kubectl", "kubelet", "containerd", "runc", "docker", "terraform")


def stripped_go_program() -> Path:
    """A real one that the Go linker made alone: there the system starts it in a function of Go's."""
    found = next((path for path in map(shutil.which, GO_PROGRAMS) if path and stripped_by_go(Path(path))), None)
    if found is None:
        missing(f"one of {', '.join(GO_PROGRAMS)} as a stripped Go program")
    return Path(found).resolve()


def stripped_by_go(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return False
        sections = {section.name for section in ELFFile(file).iter_sections()}
    return ".symtab" not in sections and ".gopclntab" in sections and ".eh_frame" not in sections


def test_a_real_program_starts_where_go_programs_start() -> None:
    path = stripped_go_program()
    with path.open("rb") as file:
        elf = ELFFile(file)
        entry = next(elf.address_offsets(elf["e_entry"]))
        machine = {"EM_X86_64": "amd64", "EM_AARCH64": "arm64"}[elf["e_machine"]]
    assert names_at(path, [entry, entry + 1]) == [f"_rt0_{machine}_linux"] * 2


SAMPLE = Elf(STARTUP + GO_CODE + 64)
with_relocated_module(SAMPLE)
CONTENT = SAMPLE.content()


@given(st.data())
def test_damaged_tables_never_break_the_reader(data: st.DataObject) -> None:
    content = bytearray(CONTENT)
    table = content.index(struct.pack("<I", GO_1_20))
    for _ in range(data.draw(st.integers(1, 6))):
        where = st.integers(table, table + 72 + 100) | st.integers(0, 120) | st.integers(CODE_OFFSET, len(content) - 1)
        content[data.draw(where)] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))])
    path = Path(f"/proc/self/fd/{os.memfd_create('damaged')}")
    try:
        path.write_bytes(damaged)
        file = open_regular(str(path))
        assert file is not None
        with file:
            go = read_go_functions(ElfFile(file.read), file.read)
            if go is not None:
                found = go.spans.find(np.arange(CODE_AT, CODE_AT + 1024, 16, dtype=np.uint64))
                for index in set(found[found >= 0].tolist()):
                    go.name(index, file)
    except FileRefused:
        pass
    finally:
        os.close(int(path.name))
