"""Functions without a name are one frame each: the module and where they start."""

import subprocess
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.symbols.settled import file_frames
from tests.collect.symbols.symbol_programs import SOURCE, Compile, mapped
from tests.parts import missing, need

from exhume.collect.symbols import files
from exhume.collect.symbols.files import FileSymbols
from exhume.collect.symbols.parser.elf import ElfFile, read_outlines
from exhume.collect.symbols.parser.open_file import FileRefused
from exhume.procfs.host import Host

STRIPPED = [
    ("-pie", "-fPIE"),
    ("-no-pie",),
    ("-static-pie", "-fPIE"),
    ("-rdynamic",),
    ("-shared", "-fPIC"),
    ("-Wl,-z,separate-code",),
]


def stripped(program: Path) -> Path:
    subprocess.run([need("strip"), program], check=True)
    return program


def code_offsets(elf: ELFFile) -> range:
    segment = next(part for part in elf.iter_segments() if part["p_type"] == "PT_LOAD" and part["p_flags"] & 1)
    return range(segment["p_offset"], segment["p_offset"] + segment["p_filesz"])


def expected_starts(elf: ELFFile) -> dict[int, int]:
    """By another reader: each byte of code that some function's entry covers, and where that function starts."""
    starts = {}
    for entry in elf.get_dwarf_info().EH_CFI_entries():
        if isinstance(entry, FDE):
            offset = next(elf.address_offsets(entry["initial_location"]), None)
            if offset is not None:
                starts.update(dict.fromkeys(range(offset, offset + entry["address_range"]), offset))
    return starts


def named_bytes(elf: ELFFile) -> dict[int, set[str]]:
    names = defaultdict(set)
    table = elf.get_section_by_name(".dynsym")
    for symbol in table.iter_symbols() if table is not None else ():
        if symbol["st_info"]["type"] in ("STT_FUNC", "STT_LOOS") and symbol["st_shndx"] != "SHN_UNDEF":
            start = next(elf.address_offsets(symbol["st_value"]))
            for offset in range(start, start + symbol["st_size"]):
                names[offset].add(symbol.name)
    return names


@pytest.mark.needs("gcc", "strip")
@pytest.mark.parametrize("flags", STRIPPED, ids=lambda flags: flags[0])
def test_every_byte_of_a_stripped_program_is_named_or_outlined_as_another_reader_says(
    compile_c: Compile, flags: tuple[str, ...]
) -> None:
    program = stripped(compile_c(SOURCE, *flags))
    with program.open("rb") as file:
        elf = ELFFile(file)
        offsets = list(code_offsets(elf))[:60_000]
        starts, names = expected_starts(elf), named_bytes(elf)
    assert len(set(starts.values())) > 4
    frames = file_frames(FileSymbols(Host()), mapped(program), offsets)
    for offset, frame in zip(offsets, frames, strict=True):
        if offset in names:
            assert frame.name in names[offset]
        else:
            assert frame.name == f"program+0x{starts.get(offset, offset):x}"


@pytest.mark.needs("gcc", "strip")
@pytest.mark.parametrize("flags", [("-rdynamic",), ("-static-pie", "-fPIE")], ids=lambda flags: flags[0])
def test_equal_numbers_mean_equal_frames(compile_c: Compile, flags: tuple[str, ...]) -> None:
    program = stripped(compile_c(SOURCE, *flags))
    with program.open("rb") as file:
        elf = ELFFile(file)
        offsets = list(code_offsets(elf))[:20_000]
        starts, names = expected_starts(elf), named_bytes(elf)
    symbols, views = FileSymbols(Host()), mapped(program)
    frames = file_frames(symbols, views, offsets)
    program_number, numbers = symbols.functions(views[0][1].file, np.array(offsets, np.uint64))
    assert program_number
    by_number, by_name = defaultdict(set), defaultdict(set)
    for offset, frame, number in zip(offsets, frames, numbers.tolist(), strict=True):
        assert (number >= 0) == (offset in starts or offset in names)
        if number >= 0:
            by_number[number].add(frame.id)
            by_name[frame.id].add(number)
    assert {len(found) for found in by_number.values()} == {len(found) for found in by_name.values()} == {1}


@pytest.mark.needs("gcc", "strip")
def test_a_function_has_no_number_before_it_is_requested(compile_c: Compile) -> None:
    program = compile_c(SOURCE, "-rdynamic")
    at = offsets_of(program, "alpha", "hidden_beta")
    stripped(program)
    symbols, views = FileSymbols(Host()), mapped(program)
    hidden = np.array([at["hidden_beta"]], np.uint64)
    file_frames(symbols, views, [at["alpha"]])
    assert symbols.functions(views[0][1].file, hidden)[1].tolist() == [-1]
    file_frames(symbols, views, [at["hidden_beta"]])
    assert symbols.functions(views[0][1].file, hidden)[1][0] >= 0


def offsets_of(program: Path, *names: str) -> dict[str, int]:
    with program.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        return {name: next(elf.address_offsets(table.get_symbol_by_name(name)[0]["st_value"])) for name in names}


@pytest.mark.needs("gcc", "strip")
def test_outlines_are_read_once_and_only_when_something_has_no_name(
    compile_c: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compile_c(SOURCE, "-rdynamic")
    at = offsets_of(program, "alpha", "gamma_last", "hidden_beta")
    stripped(program)
    asked = []
    unpack = files.unpack_outlines

    def counted(reply: files.Arrays) -> tuple[files.U64, files.U64]:
        asked.append(reply)
        return unpack(reply)

    monkeypatch.setattr(files, "unpack_outlines", counted)
    symbols, views = FileSymbols(Host()), mapped(program)
    file_frames(symbols, views, [at["alpha"], at["gamma_last"]])
    assert not asked
    for offset in (at["hidden_beta"], at["hidden_beta"] + 1, 1):
        file_frames(symbols, views, [offset])
    assert len(asked) == 1


@pytest.mark.needs("gcc", "strip")
def test_an_unreachable_file_is_retried_later(compile_c: Compile, tmp_path: Path) -> None:
    program = compile_c(SOURCE, "-rdynamic")
    at = offsets_of(program, "alpha", "hidden_beta")
    stripped(program)
    now = 0.0
    symbols, views = FileSymbols(Host(), clock=lambda: now), mapped(program)
    file_frames(symbols, views, [at["alpha"]])
    inside, start = at["hidden_beta"] + 1, at["hidden_beta"]
    program.rename(tmp_path / "elsewhere")
    assert file_frames(symbols, views, [inside])[0].name == f"program+0x{inside:x}"
    (tmp_path / "elsewhere").rename(program)
    assert file_frames(symbols, views, [inside])[0].name == f"program+0x{inside:x}"
    now = 100.0
    assert file_frames(symbols, views, [inside])[0].name == f"program+0x{start:x}"


@pytest.mark.needs("gcc", "strip")
def test_outlines_inside_named_functions_are_not_kept(compile_c: Compile) -> None:
    """A file with all its symbols has next to nothing without a name."""
    program = compile_c(SOURCE, "-static-pie", "-fPIE")
    symbols, views = FileSymbols(Host()), mapped(program)
    file_frames(symbols, views, [offsets_of(program, "alpha")["alpha"]])
    before = symbols.nbytes
    file_frames(symbols, views, [1])  # the header of the file: no function
    with program.open("rb") as file:
        functions = len(set(expected_starts(ELFFile(file)).values()))
    assert symbols.nbytes - before < functions * 8 / 4


def hidden_function(compile_c: Compile) -> tuple[Path, int, int, int]:
    """A stripped program, where its hidden function is, how long that is, and where its entry in .eh_frame lies."""
    program = compile_c(SOURCE)
    start = offsets_of(program, "hidden_beta")["hidden_beta"]
    with program.open("rb") as file:
        elf = ELFFile(file)
        address = elf.get_section_by_name(".symtab").get_symbol_by_name("hidden_beta")[0]["st_value"]
        entries = [entry for entry in elf.get_dwarf_info().EH_CFI_entries() if isinstance(entry, FDE)]
        entry = next(entry for entry in entries if entry["initial_location"] == address)
        size = entry["address_range"]
    stripped(program)
    with program.open("rb") as file:
        at = ELFFile(file).get_section_by_name(".eh_frame")["sh_offset"] + entry.offset
    return program, start, size, at


def change(program: Path, at: int, content: bytes) -> None:
    with program.open("r+b") as file:
        file.seek(at)
        file.write(content)


@pytest.mark.needs("gcc", "strip")
def test_a_function_reaches_no_further_than_its_entry_says_nor_into_the_next(compile_c: Compile) -> None:
    program, start, size, entry = hidden_function(compile_c)
    beyond, following = start + size, start + 256  # functions of this program lie 256 bytes apart
    offsets = [start + size - 1, beyond, following]
    names = [f"program+0x{offset:x}" for offset in (start, beyond, following)]
    assert [frame.name for frame in file_frames(FileSymbols(Host()), mapped(program), offsets)] == names
    change(program, entry + 12, (1 << 20).to_bytes(4, "little"))
    names[1] = names[0]
    assert [frame.name for frame in file_frames(FileSymbols(Host()), mapped(program), offsets)] == names


@pytest.mark.needs("gcc", "strip")
@pytest.mark.parametrize(
    ("field", "content"), [(8, b"\1\0\0\0"), (12, b"\0\0\0\0"), (12, b"\xff\xff\xff\xff"), (4, b"\0\0\0\0")]
)
def test_an_entry_that_contradicts_the_list_counts_for_nothing(compile_c: Compile, field: int, content: bytes) -> None:
    program, start, _, entry = hidden_function(compile_c)
    change(program, entry + field, content)
    (frame,) = file_frames(FileSymbols(Host()), mapped(program), [start + 1])
    assert frame.name == f"program+0x{start + 1:x}"


@pytest.mark.needs("gcc", "strip")
def test_a_list_in_another_encoding_counts_for_nothing(compile_c: Compile) -> None:
    program, start, _, _ = hidden_function(compile_c)
    with program.open("rb") as file:
        header = ELFFile(file).get_section_by_name(".eh_frame_hdr")["sh_offset"]
    change(program, header + 3, b"\x3c")
    (frame,) = file_frames(FileSymbols(Host()), mapped(program), [start + 1])
    assert frame.name == f"program+0x{start + 1:x}"


@pytest.mark.needs("readelf")
@pytest.mark.parametrize("path", ["/bin/gzip", "/bin/bash", "/bin/tar"])
def test_real_files_agree_with_readelf(path: str) -> None:
    if not Path(path).exists():
        missing(path)
    dump = subprocess.run([need("readelf"), "--debug-dump=frames", path], capture_output=True, text=True, check=True)
    reported = [line.rpartition("pc=")[2].split("..") for line in dump.stdout.splitlines() if " FDE " in line]
    content = Path(path).read_bytes()

    def read(offset: int, size: int) -> bytes:
        return content[offset : offset + size]

    starts, ends = read_outlines(ElfFile(read), read)
    assert sorted((int(start, 16), int(end, 16)) for start, end in reported) == list(
        zip(starts.tolist(), ends.tolist(), strict=True)
    )


@given(st.data())
def test_damaged_files_never_break_the_reader(data: st.DataObject) -> None:
    content = bytearray(Path("/bin/true").resolve().read_bytes())
    sections = int.from_bytes(content[40:48], "little")
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(sections, len(content) - 1) | st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))])

    def read(offset: int, size: int) -> bytes:
        return damaged[offset : offset + size]

    try:
        starts, ends = read_outlines(ElfFile(read), read)
    except FileRefused:
        return
    assert (starts < ends).all()
    assert (ends[:-1] <= starts[1:]).all()
