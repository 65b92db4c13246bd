"""The parser process: confined, and whatever becomes of it costs one file its names and never a tick."""

import contextlib
import errno
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.collect.symbols.settled import file_frames
from tests.collect.symbols.symbol_programs import SOURCE, Compile, mapped
from tests.parts import missing

from exhume.collect.symbols import parse_queue
from exhume.collect.symbols.file_reader import FileReader
from exhume.collect.symbols.files import FileSymbols
from exhume.collect.symbols.frame import Frame
from exhume.collect.symbols.locate import open_regular
from exhume.collect.symbols.mappings import FileKey
from exhume.collect.symbols.opener_process import OpenerProcess, ParserProcess, ProcessFailed
from exhume.collect.symbols.owners import Owner, RefusalLog, accounted_cgroup
from exhume.collect.symbols.parse_queue import ParseQueue
from exhume.collect.symbols.parser import confine
from exhume.collect.symbols.parser.open_file import FAILED, TIMEOUT, FileRefused
from exhume.collect.symbols.parser.perf_map import MapPiece
from exhume.collect.symbols.parser.program import (
    load_program,
    pack_program,
    unpack_outlines,
    unpack_program,
)
from exhume.collect.symbols.parser.wire import (
    HEADER_SIZE,
    BadReply,
    body_size,
    decode_reply,
    encode_reply,
    pieces,
    text,
)
from exhume.procfs.host import Host

OFFSET = 0x1100
# No tick may take longer than this for what a file or its parser does.
TICK_S = 0.8


@pytest.fixture
def parser() -> Iterator[ParserProcess]:
    opener = OpenerProcess.spawn()
    made = opener.start_parser()
    yield made
    made.close()
    opener.end()


@pytest.fixture
def reader() -> Iterator[FileReader]:
    made = FileReader(RefusalLog(), 60.0)
    yield made
    made.close()


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or status_of(pid)["State"][0] == "Z"


def holds_only(pid: int, connections: int) -> bool:
    """Whether a process has nothing open but its standard streams, led to nothing, and so many connections."""
    held = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
    return held.count("/dev/null") == 3 and len(held) == 3 + connections


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_running_parser_is_confined(parser: ParserProcess) -> None:
    assert parser.unconfined == []
    status = status_of(parser.pid)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    limits = Path(f"/proc/{parser.pid}/limits").read_text()
    for name in ("Max file size", "Max processes"):
        assert next(line for line in limits.splitlines() if line.startswith(name)).split()[3] == "0"
    if os.geteuid() == 0:
        assert status["CapBnd"] == "0" * 16
        assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4
        assert status["Groups"] == ""
    assert status["Threads"] == "1"


# Each prints an errno, or 0 where it was not stopped.
CONFINED = """
import os, socket, sys, ctypes, mmap, subprocess
from exhume.collect.symbols.parser import server as parser
from exhume.collect.symbols.parser.confine import confine
parser.warm_up()
libc = ctypes.CDLL(None, use_errno=True)
opened = os.open("/proc/self/exe", os.O_RDONLY)
refused = confine()
def attempt(action):
    try:
        return action() or 0
    except OSError as error:
        return error.errno
def call(*args):
    return ctypes.get_errno() if libc.syscall(*args) < 0 else 0
attempts = [
    lambda: os.close(os.open("/etc/passwd", os.O_RDONLY)),
    lambda: os.close(os.open("/tmp/exhume-written", os.O_WRONLY | os.O_CREAT)),
    lambda: socket.socket().close(),
    lambda: socket.socketpair()[0].close(),
    lambda: os.kill(os.getppid(), 0),
    lambda: os.fork() and 0,
    lambda: os.execv("/bin/true", ["true"]),
    lambda: os.ftruncate(opened, 0),
    lambda: os.memfd_create("x") and 0,
    lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC).close(),
    lambda: call(ctypes.c_long(101), 0, os.getppid(), 0, 0),   # ptrace on x86_64
    lambda: os.unshare(0) if hasattr(os, "unshare") else call(ctypes.c_long(272), 0),
]
content = str([refused, [attempt(each) for each in attempts], len(os.pread(opened, 16, 0))]).encode()
os.write(1, content)
os._exit(0)
"""


def test_inside_the_parser_nothing_can_be_opened_written_started_or_reached() -> None:
    with subprocess.Popen([sys.executable, "-c", CONFINED], stdout=subprocess.PIPE) as process:
        output, _ = process.communicate(timeout=60)
    refused, attempts, read = eval(output)
    assert refused == [] and read == 16  # what is open can be read
    assert set(attempts) <= {errno.EPERM, errno.EACCES} and len(attempts) == 12


def ticks(look: Callable[[], list[Frame]], symbols: FileSymbols, seconds: float = 20.0) -> list[Frame]:
    """Look again each tenth of a second, as ticks do each second, until nothing is on its way; no look takes long."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        symbols.queue.poll()
        frames = look()
        assert time.monotonic() - began < TICK_S
        if not any(frame.patience for frame in frames):
            return frames
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.needs("gcc")
def test_a_parser_that_is_killed_costs_one_file_its_names_for_a_while(compile_c: Compile) -> None:
    now = [0.0]
    log = RefusalLog()
    queue = ParseQueue(log)
    symbols = FileSymbols(Host(), clock=lambda: now[0], queue=queue, refusals=log)
    victim, other = compile_c(SOURCE, name="victim"), compile_c(SOURCE, name="other")
    started = mapped(compile_c(SOURCE, name="first"))
    try:
        ticks(lambda: symbols.frames(started, [OFFSET]), symbols)
        first = queue.parser
        assert first is not None
        os.kill(first.pid, signal.SIGSTOP)
        symbols.frames(mapped(victim), [OFFSET])
        symbols.frames(mapped(other), [OFFSET])
        time.sleep(0.2)
        os.kill(first.pid, signal.SIGKILL)
        frames = ticks(lambda: symbols.frames(mapped(victim), [OFFSET]), symbols)
        assert frames[0].name == f"victim+0x{OFFSET:x}"
        (row,) = log.take()
        assert row.kind == f"symbols-{FAILED}" and str(victim) in row.text
        assert f"process {os.getpid()}" in row.text and f"uid {os.getuid()}" in row.text
        assert f"signal {int(signal.SIGKILL)}" in row.text
        # The next file has another parser, and the victim has its names when it is tried again.
        assert ticks(lambda: symbols.frames(mapped(other), [OFFSET]), symbols)[0].name != f"other+0x{OFFSET:x}"
        assert queue.parser is not None and queue.parser.pid != first.pid
        now[0] = 61.0
        assert ticks(lambda: symbols.frames(mapped(victim), [OFFSET]), symbols)[0].name != f"victim+0x{OFFSET:x}"
    finally:
        queue.close()


@pytest.mark.needs("gcc")
def test_a_parser_that_hangs_is_ended_at_the_deadline(compile_c: Compile) -> None:
    log = RefusalLog()
    queue = ParseQueue(log, deadline_s=1.0)
    symbols = FileSymbols(Host(), queue=queue, refusals=log)
    started, victim = mapped(compile_c(SOURCE, name="first")), compile_c(SOURCE, name="victim")
    try:
        ticks(lambda: symbols.frames(started, [OFFSET]), symbols)
        first = queue.parser
        assert first is not None
        os.kill(first.pid, signal.SIGSTOP)
        began = time.monotonic()
        ticks(lambda: symbols.frames(mapped(victim), [OFFSET]), symbols)
        assert time.monotonic() - began < 10
        (row,) = log.take()
        assert row.kind == f"symbols-{TIMEOUT}" and str(victim) in row.text
        assert not Path(f"/proc/{first.pid}").exists()
    finally:
        queue.close()


def test_parsers_that_fail_one_after_the_other_are_started_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[float] = []

    def fail() -> OpenerProcess:
        started.append(time.monotonic())
        raise ProcessFailed("no memory")

    monkeypatch.setattr(OpenerProcess, "spawn", fail)
    queue = ParseQueue()
    codes: list[object] = []
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        queue.submit(Owner(0, "/"), "device", lambda reader: reader.ask({}, []), codes.append)
        queue.wait(5.0)
        time.sleep(0.02)
    queue.close()
    assert len(started) <= 3 < len(codes)
    assert {code.code for code in codes if isinstance(code, FileRefused)} == {FAILED, "deferred"}


def test_memory_beyond_the_limit_is_refused_and_the_parser_goes_on(reader: FileReader, tmp_path: Path) -> None:
    path = tmp_path / "perf.map"
    path.write_bytes(b"")
    os.truncate(path, 8 << 30)
    (file,) = reader.open_regular([("", str(path))])
    assert file is not None
    with pytest.raises(FileRefused) as refused:
        reader.ask({"kind": "perf-map", "offset": 0, "size": 4 << 30}, [file], keep=True)
    assert "memory" in refused.value.detail
    assert reader.parser is not None
    pid = reader.parser.pid
    reply = reader.ask({"kind": "perf-map", "offset": 0, "size": 4096}, [file])
    assert MapPiece(reply, 4096).read == 4096
    assert int(status_of(pid)["VmHWM"].split()[0]) < 300_000


def test_nothing_but_a_regular_file_is_opened_and_links_stay_below_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"outside")
    (root / "outside").write_bytes(b"inside")
    (root / "etc/link").symlink_to("/outside")
    (root / "up").symlink_to("../../../outside")
    (root / "magic").symlink_to("/proc/self/root/outside")
    os.mkfifo(root / "pipe")
    (root / "null").symlink_to("/dev/null")
    for path in ("/etc/link", "/up"):
        file = open_regular(path, root=str(root))
        assert file is not None
        with file:
            assert file.read(0, 16) == b"inside"
    began = time.monotonic()
    for path in ("/pipe", "/null", "/magic", "/missing"):
        assert open_regular(path, root=str(root)) is None
    assert open_regular("/etc/link", root=str(root), follow=False) is None
    status = (root / "outside").stat()
    key = FileKey(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino, 0, "/outside")
    assert open_regular("/outside", key._replace(inode=status.st_ino + 1), root=str(root)) is None
    found = open_regular("/outside", key, root=str(root))
    assert found is not None
    found.close()
    assert time.monotonic() - began < TICK_S


@pytest.mark.slow
def test_two_cgroups_of_one_user_have_shares_of_their_own() -> None:
    """One asks for more than its share of a second: the other's job is done all the same, and in its turn."""
    queue = ParseQueue()
    attacker, victim = Owner(1000, "/attacker"), Owner(1000, "/victim")
    order: list[Owner] = []
    refused: list[object] = []

    def busy(_: object) -> Owner:
        began = time.thread_time()
        while time.thread_time() - began < 0.05:
            pass
        return attacker

    def done(result: object) -> None:
        order.append(result) if isinstance(result, Owner) else refused.append(result)

    for number in range(1000):
        queue.submit(attacker, number, busy, done)
    queue.submit(victim, "victim", lambda _: victim, done)
    queue.wait(60.0)
    queue.close()
    assert order.index(victim) <= 2, "owners take turns"
    assert order.count(attacker) < 40, "a second of CPU time"
    assert {each.code for each in refused if isinstance(each, FileRefused)} == {"deferred"}
    assert len(refused) == 1000 - order.count(attacker)


@pytest.mark.parametrize(
    ("path", "accounted"),
    [
        ("/", "/"),
        ("/system.slice/a.service/sub/x", "/system.slice/a.service"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/1",
            "/user.slice/user-1000.slice/user@1000.service",
        ),
        ("/docker/" + "a1" * 32 + "/below", "/docker/" + "a1" * 32),
        ("/batch/one", "/batch/one"),
    ],
)
def test_what_a_service_or_container_makes_below_itself_is_no_owner_of_its_own(path: str, accounted: str) -> None:
    assert accounted_cgroup(path) == accounted


def sound_replies(compile_c: Compile) -> list[tuple[bytes, Callable[[dict[str, np.ndarray]], object]]]:
    file = open_regular(str(compile_c(SOURCE)))
    assert file is not None
    with file:
        program = encode_reply(pack_program(load_program(file)[0], 0))
    outlines = encode_reply({"outline": np.array([1, 5], np.uint64), "outlined": np.array([3, 9], np.uint64)})
    names = encode_reply({"lengths": np.array([1, 2], np.uint32), "content": text(b"abc")})
    piece = encode_reply(
        {
            "starts": np.array([16], np.uint64),
            "ends": np.array([32], np.uint64),
            "lengths": np.array([1], np.uint32),
            "content": text(b"f"),
            "written": np.array([16, 32], np.uint64),
            "progress": np.array([8, 8], np.uint64),
        }
    )
    return [
        (program, unpack_program),
        (outlines, unpack_outlines),
        (names, lambda arrays: pieces(arrays, "lengths", "content")),
        (piece, lambda arrays: MapPiece(arrays, 100)),
    ]


def decode(content: bytes) -> dict[str, np.ndarray]:
    header = content[:HEADER_SIZE].ljust(HEADER_SIZE, b"\0")
    body = content[HEADER_SIZE:]
    if body_size(header) != len(body):
        raise BadReply("its length")
    return decode_reply(header, body)


@pytest.mark.needs("gcc")
def test_garbage_in_a_reply_is_refused_or_harmless(compile_c: Compile) -> None:
    """For two seconds, or EXHUME_FUZZ_SECONDS; a failure prints its seed."""
    until = time.monotonic() + float(os.environ.get("EXHUME_FUZZ_SECONDS", "2"))
    sound = sound_replies(compile_c)
    for content, use in sound:
        use(decode(content))
    addresses = np.array([0, 1, 0x1000, 0x1100, 2**63, 2**64 - 1], np.uint64)
    edges = (0, 1, 255, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
    seed = refused = 0
    while time.monotonic() < until or not refused:
        seed += 1
        random_ = random.Random(seed)
        content, use = sound[seed % len(sound)]
        changed = bytearray(content)
        for _ in range(random_.randint(1, 5)):
            at = random_.randrange(min(len(changed), random_.choice((16, 300, 1 << 20))))
            value = random_.choice(edges) if random_.random() < 0.5 else random_.getrandbits(64)
            width, pattern = random_.choice(((1, "<B"), (4, "<I"), (8, "<Q")))
            if at + width <= len(changed):
                struct.pack_into(pattern, changed, at, value % 2 ** (8 * width))
        if random_.random() < 0.2:
            del changed[random_.randrange(len(changed)) :]
        try:
            result = use(decode(bytes(changed)))
            if use is unpack_program:
                program, _ = result
                found = [index for index in program.find(addresses).tolist() if index >= 0]
                for index in found:
                    program.start(index), program.lookup(index)
                    if not program.needs_file:
                        program.name(index, None)
        except (BadReply, FileRefused):
            refused += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert refused


@pytest.mark.needs("gcc")
def test_a_parser_that_sends_garbage_is_ended(compile_c: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RefusalLog()
    queue = ParseQueue(log)
    symbols = FileSymbols(Host(), queue=queue, refusals=log)
    ask = FileReader.ask

    def garbled(self, request, files, **how):
        reply = ask(self, request, files, **how)
        return {**reply, "starts0": reply["starts0"][::-1].copy()} if request["kind"] == "program" else reply

    path = compile_c(SOURCE)
    try:
        with monkeypatch.context() as patch, contextlib.suppress(KeyError):
            patch.setattr(FileReader, "ask", garbled)
            frames = file_frames(symbols, mapped(path), [OFFSET])
        assert frames[0].name == f"program+0x{OFFSET:x}"
        assert [row.kind for row in log.take()] == [f"symbols-{FAILED}"]
        assert queue.parser is None
    finally:
        queue.close()


def test_a_parser_without_work_is_ended_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_queue, "_IDLE_S", 0.2)
    queue = ParseQueue(deadline_s=60.0)
    pids: list[object] = []

    def ask_for_pid(reader: FileReader) -> int:
        reader.ask({"kind": "names", "lookups": [], "mangled": [b"_Z1fv".hex()]}, [])
        assert queue.parser is not None
        return queue.parser.pid

    try:
        for _ in range(2):
            queue.submit(Owner(0, "/"), "device", ask_for_pid, pids.append)
            queue.wait(30.0)
            wait_until(lambda: queue.parser is None)
        assert len(set(pids)) == 2
        assert queue.cost[0] > 0, "what they took is counted"
    finally:
        queue.close()


STARTING = """
import os, time
from exhume.collect.symbols.opener_process import OpenerProcess
opened = os.open("/etc/passwd", os.O_RDONLY)
opener = OpenerProcess.HOW()
parser = opener.start_parser()
assert parser.unconfined == []
print(parser.pid, opener.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_opener_and_parser_hold_nothing_else_and_end_with_the_recorder(how: str) -> None:
    script = STARTING.replace("HOW", how)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        pid, opener = map(int, recorder.stdout.readline().split())
        status = status_of(pid)
        assert (status["CapEff"], status["NoNewPrivs"], status["Seccomp"]) == ("0" * 16, "1", "2")
        assert status["Threads"] == "1"
        if os.geteuid() == 0:
            assert holds_only(pid, connections=1)
            # One end of a connection more: to the parser. What it handed to the recorder it closes after its reply.
            wait_until(lambda: holds_only(opener, connections=2))
        for process in (pid, opener):
            assert Path(f"/proc/{process}/cwd").readlink() == Path("/")
        recorder.kill()
    for process in (pid, opener):
        wait_until(lambda process=process: has_ended(process))


def test_what_the_kernel_refuses_of_the_confinement_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ParserProcess.wait_started

    def unconfined(self) -> None:
        start(self)
        self.unconfined = ["seccomp"]

    monkeypatch.setattr(ParserProcess, "wait_started", unconfined)
    monkeypatch.setattr(parse_queue, "_IDLE_S", 0.1)
    log = RefusalLog()
    queue = ParseQueue(log, deadline_s=60.0)
    request = {"kind": "names", "lookups": [], "mangled": []}
    answers: list[object] = []
    try:
        for _ in range(2):
            queue.submit(Owner(0, "/"), "device", lambda reader: reader.ask(request, []), answers.append)
            queue.wait(30.0)
            time.sleep(0.5)  # the next has another parser
        assert not any(isinstance(answer, FileRefused) for answer in answers)
        (row,) = log.take()
        assert row.kind == "symbols-unconfined" and "seccomp" in row.text
    finally:
        queue.close()


def numbers_of(header: Path) -> dict[str, int]:
    """System calls and their numbers in a header of the kernel. Those that differ by word size have the names of
    64-bit ones here."""
    if not header.is_file():
        missing("linux-libc-dev")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    # Later definitions are for 32 bits (include/uapi/asm-generic/unistd.h, at its end).
    numbers: dict[str, int] = {}
    for name, number in found:
        numbers.setdefault("newfstatat" if name == "fstatat" else name, int(number))
    return numbers


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_numbers_of_system_calls_are_the_kernels(machine: str) -> None:
    headers = {
        "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        # arch/arm64/include/uapi/asm/unistd.h includes this one.
        "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    }
    known = numbers_of(headers[machine])
    column, _ = confine._ARCHITECTURES[machine]
    table = {**confine._ALLOWED, **confine._MAPPING}
    assert {name: numbers[column] for name, numbers in table.items()} == {name: known.get(name) for name in table}


def test_the_filters_of_both_architectures_have_numbers_for_all_calls() -> None:
    without = [name for name, (_, aarch64) in confine._ALLOWED.items() if aarch64 is None]
    assert without == ["poll"] and "ppoll" in confine._ALLOWED
