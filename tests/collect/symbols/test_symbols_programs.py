"""Addresses of running programs get the names that their source gave them, or none."""

import fcntl
import itertools
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from tests.collect.symbols.settled import user_frames, users_frames
from tests.collect.symbols.symbol_programs import SOURCE, Compile, map_file, running
from tests.parts import missing, need

from exhume.collect.symbols import file_reader, files
from exhume.collect.symbols.file_reader import FileReader
from exhume.collect.symbols.frame import Frame
from exhume.collect.symbols.mappings import AddressSpace
from exhume.collect.symbols.opener_process import OpenerProcess
from exhume.collect.symbols.owners import Owner
from exhume.collect.symbols.parse_queue import ParseQueue
from exhume.collect.symbols.parser.open_file import TIMEOUT, FileRefused
from exhume.collect.symbols.symbolizer import Symbolizer
from exhume.procfs.host import Host

NAMES = ("alpha", "hidden_beta", "gamma_last", "main")


def resolve(pid: int, *addresses: int) -> list[Frame]:
    space = AddressSpace.from_proc(Host(), pid)
    assert space is not None
    return user_frames(Symbolizer(Host()), space, np.array(addresses, np.uint64))


def sizes(program: Path) -> dict[str, int]:
    with program.open("rb") as file:
        return {
            symbol.name: symbol["st_size"] for symbol in ELFFile(file).get_section_by_name(".symtab").iter_symbols()
        }


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("flags", [("-pie", "-fPIE"), ("-no-pie",), ("-static",), ("-static-pie", "-fPIE")])
def test_functions_are_named_from_first_to_last_byte(compile_c: Compile, flags: tuple[str, ...]) -> None:
    program = compile_c(SOURCE, *flags)
    length = sizes(program)
    with running(program) as run:
        for name in NAMES:
            start = run.addresses[name]
            frames = resolve(run.pid, start, start + length[name] - 1)
            assert [frame.name for frame in frames] == [name, name]
            assert {(frame.kind, frame.module) for frame in frames} == {("user", str(program))}


@pytest.mark.needs("gcc")
def test_an_address_beyond_a_function_is_not_that_function(compile_c: Compile) -> None:
    program = compile_c(SOURCE)
    length = sizes(program)
    with running(program) as run:
        start = run.addresses["alpha"]
        space = AddressSpace.from_proc(Host(), run.pid)
        assert space is not None
        mapping = space.find(start)
        assert mapping is not None
        (frame,) = resolve(run.pid, start + length["alpha"])
        offset = start + length["alpha"] - mapping.start + mapping.offset
        assert frame.name == f"program+0x{offset:x}"


@pytest.mark.needs("gcc")
def test_a_stripped_program_is_named_by_its_dynamic_symbols(compile_c: Compile) -> None:
    program = compile_c(SOURCE, "-rdynamic")
    subprocess.run([need("strip"), program], check=True)
    with running(program) as run:
        alpha, beta = resolve(run.pid, run.addresses["alpha"], run.addresses["hidden_beta"])
        assert alpha.name == "alpha"
        assert beta.name.startswith("program+0x")


@pytest.mark.needs("gcc")
def test_a_debug_file_is_reached_also_when_the_process_by_which_it_was_found_is_gone(
    compile_c: Compile,
) -> None:
    # So many names that they are read when they are first asked for.
    more = "\n".join(f"int {'a_rather_long_name_' * 8}{i}(int x) {{ return x + {i}; }}" for i in range(1000))
    program = compile_c(SOURCE + more, "-Wl,--build-id=sha1")
    debug = program.parent / ".debug" / "program.debug"
    debug.parent.mkdir()
    subprocess.run([need("objcopy"), "--only-keep-debug", program, debug], check=True)
    subprocess.run([need("strip"), program], check=True)
    subprocess.run([need("objcopy"), f"--add-gnu-debuglink={debug}", program], check=True)
    symbolizer = Symbolizer(Host())
    reported = []
    for name in ("alpha", "hidden_beta"):
        with running(program) as run:
            space = AddressSpace.from_proc(Host(), run.pid)
            assert space is not None
            reported += user_frames(symbolizer, space, np.array([run.addresses[name]], np.uint64))
    assert [frame.name for frame in reported] == ["alpha", "hidden_beta"]


@pytest.mark.root
def test_a_process_that_can_not_be_looked_into_is_named_by_what_everybody_can_read() -> None:
    with subprocess.Popen([need("sleep"), "60"]) as process:
        try:
            until("its libraries are mapped", lambda: _code_of(process.pid, "/libc.so"))
            library = _code_of(process.pid, "/libc.so")
            space = AddressSpace.from_proc(Host(), process.pid)
            assert space is not None
            os.seteuid(65534)
            try:
                with pytest.raises(PermissionError):
                    Path(f"/proc/{process.pid}/root").is_dir()
                frames = user_frames(Symbolizer(Host()), space, np.array([library], np.uint64))
            finally:
                os.seteuid(0)
        finally:
            process.kill()
    assert [Path(frame.module).name for frame in frames] == ["libc.so.6"]


def _code_of(pid: int, file: str) -> int | None:
    """Where the code of a file begins in a process; None while it isn't mapped yet."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return next((int(line.partition("-")[0], 16) for line in lines if file in line and " r-xp " in line), None)


@pytest.mark.needs("gcc")
def test_libraries_are_named_by_the_path_they_are_mapped_under(compile_c: Compile, tmp_path: Path) -> None:
    library = compile_c("int spin(int x) { return x + 1; }", "-shared", "-fPIC", name="libspin.so")
    source = """
    #include <stdio.h>
    #include <unistd.h>
    int spin(int);
    int main() { printf("spin=%p\\n", (void *)spin); fflush(stdout); pause(); return spin(1); }
    """
    program = compile_c(source, str(library), f"-Wl,-rpath,{tmp_path}", name="uses")
    with running(program) as run:
        (frame,) = resolve(run.pid, run.addresses["spin"])
        assert (frame.module, frame.name) == (str(library), "spin")


@pytest.mark.root
def test_a_deleted_program_is_still_named(compile_c: Compile) -> None:
    program = compile_c(SOURCE)
    with running(program) as run:
        program.unlink()
        (frame,) = resolve(run.pid, run.addresses["alpha"])
        assert (frame.module, frame.name) == (str(program), "alpha")


@pytest.mark.needs("gcc")
def test_a_replaced_program_never_lends_its_names_to_the_old_one(compile_c: Compile) -> None:
    program = compile_c(SOURCE)
    other = compile_c(SOURCE.replace("alpha", "impostor"), name="other")
    with running(program) as run:
        other.replace(program)
        (frame,) = resolve(run.pid, run.addresses["alpha"])
        assert frame.name == "alpha" or frame.name.startswith("program+0x")
        assert os.geteuid() != 0 or frame.name == "alpha"


@pytest.mark.needs("gcc")
def test_a_program_rewritten_in_place_is_read_again(compile_c: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHECK_EVERY_S", 0.0)
    library = compile_c("int before(int x) { return x + 1; }", "-shared", "-fPIC", name="libchange.so")
    after = compile_c("int behind(int x) { return x + 1; }", "-shared", "-fPIC", name="libafter.so")
    offset = sizes_at(library, "before")
    status = library.stat()
    space = AddressSpace(os.getpid())
    map_file(
        space,
        0x7F0000000000,
        0x7F0000010000,
        0,
        os.major(status.st_dev),
        os.minor(status.st_dev),
        status.st_ino,
        0,
        str(library),
    )
    symbolizer = Symbolizer(Host())
    address = np.array([0x7F0000000000 + offset], np.uint64)
    assert user_frames(symbolizer, space, address)[0].name == "before"
    shutil.copyfile(after, library)
    os.utime(library, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    user_frames(symbolizer, space, address)  # asks whether it was
    symbolizer.wait(60.0)
    assert user_frames(symbolizer, space, address)[0].name == "behind"


def sizes_at(program: Path, name: str) -> int:
    """The file offset of a function in a library (whose code lies at the offset of its address)."""
    with program.open("rb") as file:
        elf = ELFFile(file)
        symbol = elf.get_section_by_name(".symtab").get_symbol_by_name(name)[0]
        return next(elf.address_offsets(symbol["st_value"]))


@pytest.mark.needs("gcc")
def test_a_process_that_is_gone_is_named_only_by_the_very_same_file(compile_c: Compile) -> None:
    library = compile_c("int work(int x) { return x + 1; }", "-shared", "-fPIC", name="libwork.so")
    offset = sizes_at(library, "work")
    status = library.stat()
    major, minor = os.major(status.st_dev), os.minor(status.st_dev)
    gone = 2**22 + 1
    expected = {(status.st_ino, minor): "work", (status.st_ino + 1, minor): None, (status.st_ino, minor + 1): None}
    for (inode, minor_reported), name in expected.items():
        space = AddressSpace(gone)
        map_file(space, 0x7F0000000000, 0x7F0000010000, 0, major, minor_reported, inode, 0, str(library))
        (frame,) = user_frames(Symbolizer(Host()), space, np.array([0x7F0000000000 + offset], np.uint64))
        assert frame.name == (name or f"libwork.so+0x{offset:x}")


@pytest.mark.needs("gcc")
def test_an_inode_number_given_out_again_is_another_file(compile_c: Compile) -> None:
    library = compile_c("int work(int x) { return x + 1; }", "-shared", "-fPIC", name="libwork.so")
    with library.open("rb") as file:
        try:
            generation = struct.unpack_from("=I", fcntl.ioctl(file, 0x80087601, bytes(8)))[0]
        except OSError:
            missing("a filesystem with inode generations")
    if not generation:
        missing("a filesystem with inode generations")
    offset = sizes_at(library, "work")
    status = library.stat()
    for reported, name in ((generation, "work"), (generation ^ 1, f"libwork.so+0x{offset:x}")):
        space = AddressSpace(os.getpid())
        major, minor = os.major(status.st_dev), os.minor(status.st_dev)
        map_file(space, 0x7F0000000000, 0x7F0000010000, 0, major, minor, status.st_ino, reported, str(library))
        assert user_frames(Symbolizer(Host()), space, np.array([0x7F0000000000 + offset], np.uint64))[0].name == name


@pytest.mark.needs("g++")
def test_cplusplus_names_are_readable(compile_c: Compile) -> None:
    source = """
    #include <cstdio>
    #include <unistd.h>
    #include <vector>
    namespace work { template <typename T> struct Box {
        __attribute__((noinline)) int grind(const std::vector<T> &items) { return items.size() + 1; } }; }
    int main() {
        std::vector<int> items(3);
        int (work::Box<int>::*method)(const std::vector<int> &) = &work::Box<int>::grind;
        std::printf("grind=%p\\n", *(void **)&method);
        std::fflush(stdout);
        pause();
        return (work::Box<int>().*method)(items);
    }
    """
    program = compile_c(source, compiler="g++")
    with running(program) as run:
        (frame,) = resolve(run.pid, run.addresses["grind"])
        assert frame.name.replace("> >", ">>") == (
            "work::Box<int>::grind(std::vector<int, std::allocator<int>> const&)"
        )


@pytest.mark.needs("rustc")
@pytest.mark.parametrize("scheme", ["default", "v0"])
def test_rust_names_are_readable(tmp_path: Path, scheme: str) -> None:
    rustc = need("rustc")
    code = tmp_path / "crunch.rs"
    code.write_text("""
    trait Work { fn grind(&self, x: u64) -> u64; }
    struct Mill<T>(T);
    impl<T: Copy + Into<u64>> Work for Mill<T> {
        #[inline(never)] fn grind(&self, x: u64) -> u64 { opaque(x).wrapping_mul(self.0.into()) }
    }
    // What the compiler can't see through, in a way that older ones know too.
    fn opaque(x: u64) -> u64 { unsafe { std::ptr::read_volatile(&x) } }
    mod deep { #[inline(never)] pub fn spin(x: u64) -> u64 { super::opaque(x) + 1 } }
    fn main() {
        println!("grind={:p} spin={:p}", <Mill<u32> as Work>::grind as *const (), deep::spin as *const ());
        std::thread::sleep(std::time::Duration::from_secs(60));
        println!("{}", Mill(3u32).grind(deep::spin(1)));
    }
    """)
    flags = [] if scheme == "default" else ["-C", "symbol-mangling-version=v0"]
    program = tmp_path / "crunch"
    built = subprocess.run([rustc, "-O", *flags, "-o", program, code], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    with running(program) as run:
        grind, spin = resolve(run.pid, run.addresses["grind"], run.addresses["spin"])
        assert spin.name == "crunch::deep::spin"
        assert grind.name in (
            "<crunch::Mill<u32> as crunch::Work>::grind",
            "<crunch::Mill<T> as crunch::Work>::grind",
        )


@pytest.mark.needs("gcc")
def test_the_vdso_is_named_in_every_process(compile_c: Compile) -> None:
    source = """
    #include <stdio.h>
    #include <unistd.h>
    #include <sys/auxv.h>
    int main() { printf("vdso=%#lx\\n", getauxval(33)); fflush(stdout); pause(); return 0; }
    """
    program = compile_c(source)
    with running(program) as run:
        base = run.addresses["vdso"]
        if not base:
            missing("a vdso")
        space = AddressSpace.from_proc(Host(), run.pid)
        assert space is not None
        mapping = space.find(base)
        assert mapping is not None and mapping.file.path == "[vdso]"
        frames = user_frames(Symbolizer(Host()), space, np.arange(mapping.start, mapping.end, 16, dtype=np.uint64))
        names = {frame.name for frame in frames}
        assert {frame.module for frame in frames} == {"[vdso]"}
        assert any("clock_gettime" in name for name in names)
        assert frames[0].name == "[vdso]+0x0"  # the header is no function


def test_memory_without_a_file_merges_under_one_name() -> None:
    space = AddressSpace(os.getpid())
    map_file(space, 0x10000, 0x20000, 0, 0, 0, 0, 0, "//anon")
    map_file(space, 0x30000, 0x40000, 0, 0, 0, 0, 0, "")
    frames = user_frames(Symbolizer(Host()), space, np.array([0x10008, 0x10010, 0x30000, 0x50000], np.uint64))
    assert [frame.name for frame in frames] == ["[anon]", "[anon]", "[anon]", "[unknown]"]
    assert len({frame.id for frame in frames}) == 2


@pytest.mark.needs("gcc")
def test_many_processes_at_once_get_what_each_alone_gets(compile_c: Compile) -> None:
    program = compile_c(SOURCE)
    with running(program) as one, running(program) as other:
        symbolizer = Symbolizer(Host())
        batch = []
        for run in (one, other):
            space = AddressSpace.from_proc(Host(), run.pid)
            assert space is not None
            batch.append((space, np.array([run.addresses[name] for name in NAMES] + [1], np.uint64)))
        together = users_frames(symbolizer, batch)
        assert together == [user_frames(Symbolizer(Host()), *item) for item in batch]
        assert [frame.name for frame in together[1]] == [*NAMES, "[unknown]"]


@pytest.mark.needs("gcc")
def test_numbers_of_another_kind_need_the_word_of_the_living_process(compile_c: Compile) -> None:
    """Where a filesystem reports other device numbers for mappings than for files, the process vouches by mapping
    that path at that address; at another address it doesn't."""
    program = compile_c(SOURCE)
    with running(program) as run:
        space = AddressSpace.from_proc(Host(), run.pid)
        assert space is not None
        mapping = space.find(run.addresses["alpha"])
        assert mapping is not None
        key = mapping.file.key
        for shift, name in ((0, "alpha"), (1 << 24, None)):
            reported = AddressSpace(run.pid)
            start, end = mapping.start + shift, mapping.end + shift
            map_file(reported, start, end, mapping.offset, 0, 999, key.inode + 1, 0, key.path)
            (frame,) = user_frames(Symbolizer(Host()), reported, np.array([run.addresses["alpha"] + shift], np.uint64))
            offset = run.addresses["alpha"] - mapping.start + mapping.offset
            assert frame.name == (name or f"program+0x{offset:x}")


def test_a_filesystem_that_does_not_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed ends, unless a file system blocks it: here it is made to look as if it did not."""
    blocked: list[int] = []
    ended = OpenerProcess.has_ended

    def has_ended(self: OpenerProcess, seconds: float = 0.0) -> bool:
        return self.pid not in blocked and ended(self, seconds)

    monkeypatch.setattr(OpenerProcess, "has_ended", has_ended)
    monkeypatch.setattr(file_reader, "START_S", 0.5)
    asked: list[str] = []

    def looks(reader: FileReader) -> str:
        asked.append("asked")
        return "fine" if reader.identities(["/"])[0] else "gone"

    opener = OpenerProcess.spawn()
    blocked.append(opener.pid)
    os.kill(opener.pid, signal.SIGSTOP)
    queue = ParseQueue(deadline_s=0.05, opener=opener)
    answers = partial(answer, queue)
    try:
        assert answers(7, looks) == TIMEOUT
        assert answers(7, looks) == TIMEOUT
        assert asked == ["asked"]  # the second time it was not even tried
        # Others have another process to ask, though it takes a while to start.
        monkeypatch.setattr(file_reader, "START_S", 20.0)
        others = itertools.count(8)
        until("another answers", lambda: answers(next(others), looks, user=next(others)) == "fine")
        blocked.clear()
        until("it answers again", lambda: answers(7, looks, user=1) == "fine")
    finally:
        queue.close()


def answer(queue: ParseQueue, device: int, job: Callable[[FileReader], str], user: int = 0) -> str:
    """What the job returns, or the code of the refusal."""
    results: list[str | FileRefused] = []
    queue.submit(Owner(user, "/"), device, job, results.append)
    until("it is done", lambda: queue.poll() or results)
    (result,) = results
    return result.code if isinstance(result, FileRefused) else result


def until(what: str, happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
