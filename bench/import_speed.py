"""How fast files of other tools become a recording, next to `perf script` of the same files, and in how much memory."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO

import numpy as np
import numpy.typing as npt

from bench.flamescope import ROWS as HEATMAP_ROWS
from bench.flamescope import Server, Times, one_start
from bench.flamescope_server import VARIABLE, flamescope
from bench.load import FORKS_PER_SECOND, load
from bench.processes import EXHUME, BenchError, start_perf, watch
from bench.report import Row, Section
from bench.serving import exhume_server
from bench.synthetic import WINDOW_S
from exhume.collect.perf.attr import SampleType
from exhume.interop.importers.perf_data.header import read_header
from exhume.interop.importers.perf_data.records import Kind, Layout, RecordReader
from exhume.model.clock import NANOS, Window
from exhume.store.read.flame_tree import build_tree
from exhume.store.read.recording import Recording

# So many samples a second on each core give more than a hundred thousand in a quarter of a minute.
RATE, SECONDS = 4999, 14
TEXT_BYTES = 150 << 20
LARGE_BYTES = 1 << 30
# Two minutes of a node on which some processes come and go: in half a day of a fork storm perf keeps 28 GB.
SERIES, SERIES_S, SERIES_RATE, SERIES_FORKS = 360, 120, 97, 20
START = "2026-03-01T00:00:00Z"
ROUNDS = 3


def measure(work: Path, quick: bool) -> Section:
    dense, sparse = work / "dense.data", work / "sparse.data"
    _record(dense, RATE, 4 if quick else SECONDS, FORKS_PER_SECOND)
    _record(sparse, SERIES_RATE, 10 if quick else SERIES_S, SERIES_FORKS)
    rounds = 1 if quick else ROUNDS
    perf, data = _fastest(rounds, dense)
    samples = _samples(dense.with_suffix(".imported"))
    printed = work / "one.txt"
    copies = 1 if quick else max(1, round(TEXT_BYTES / max(1, _printed(dense, printed))))
    texts = [_shifted(dense, work / f"text{number}.data", number) for number in range(copies)]
    printing, reading, text_bytes = _text(texts, work, rounds)
    for path in (printed, *texts):
        path.unlink(missing_ok=True)
    large = work / "large.data"
    rss = _memory(dense, large, (32 << 20) if quick else LARGE_BYTES)
    large_bytes = large.stat().st_size
    large.unlink()
    files = [_shifted(sparse, work / f"series{number}.data", number) for number in range(6 if quick else SERIES)]
    script_sum = sum(_seconds(["perf", "script", "-i", str(path)]) for path in files)
    series = _import(files, work / "series")
    grid, flame = _answers(work / "series")
    peer = _next_to_flamescope(dense, dense.with_suffix(".imported"), work, rounds)
    return Section(
        "Imports",
        f"""
        The same files to `perf script`, which prints them to /dev/null, and to `exhume import`, from start to exit,
        with sealed segments and their indexes: perf.data of {SECONDS} s at {RATE} Hz while every core compresses and
        {FORKS_PER_SECOND} processes a second come and go ({samples:,} samples); the text that `perf script` prints of
        it, {copies} times one after the other ({text_bytes >> 20} MB), next to the seconds it took to print that;
        {len(files)} files of {SERIES_S} s at {SERIES_RATE} Hz with {SERIES_FORKS} new processes a second, which are one
        recording with shifted times. Wall time; the fastest of {rounds} in turns, the series once. Memory is that of
        all processes of an import, what they share counted once. What limits it: of a perf.data file the place of each
        record depends on the one before, and what an address means on all that was mapped until then, so one core reads
        a file and the other hashes it and seals; a text is cut in two. Of the time for this perf.data about a third is
        Python's start and the sealed segments, which a longer file has no more of.{peer.method}
        """,
        [
            Row("perf.data to a recording / perf script of it", data / perf, "", 1.0, 0.5),
            Row("the same, seconds of exhume import", data, "s"),
            Row("the same, seconds of perf script", perf, "s"),
            Row("perf script text to a recording / the perf script that printed it", reading / printing, "", 1.5, 0.8),
            Row(f"memory, importing {large_bytes / 1e9:.1f} GB of perf.data", rss / 1e6, "MB", 400, 250, digits=0),
            Row(
                f"{len(files)} files of two minutes / the sum of perf script of each", series / script_sum, "", 0.8, 0.4
            ),
            Row("the same, seconds of exhume import", series, "s", digits=0),
            Row("heatmap of the series, in process", grid, "ms", digits=1),
            Row("5 s flame graph of the series, in process", flame, "ms", digits=1),
            *peer.rows,
        ],
    )


def _record(path: Path, rate: int, seconds: float, forks: float) -> None:
    with load(forks):
        perf = start_perf(path, rate, "-k", "mono")
        watch(seconds, perf)
    perf.finish()


def _samples(directory: Path) -> int:
    rows = Recording.open(directory).read("sampling")
    return sum(int(sum(rows.column(name).to_pylist())) for name in ("busy", "idle"))


@dataclass(frozen=True, slots=True)
class _Peer:
    """What FlameScope was compared in, and how."""

    method: str = ""
    rows: tuple[Row, ...] = ()


def _next_to_flamescope(data: Path, directory: Path, work: Path, rounds: int) -> _Peer:
    """The first heatmap and the first flame graph of a start, of the imported file and of its text."""
    if not os.environ.get(VARIABLE):
        return _Peer(f" Not compared with FlameScope: {VARIABLE} is not set.")
    peer = flamescope(work.parent)
    profiles = work / "profiles"
    profiles.mkdir(exist_ok=True)
    text = profiles / "stacks"
    _seconds(["perf", "script", "--header", "-i", str(data)], text)
    span = Recording.open(directory).span()
    assert span is not None
    first, last = -(-span.since // NANOS) + 1, span.until // NANOS - 1
    query = f"filename={text.name}&type=perf"

    def window(since: int, until: int) -> str:
        return f"since={since * 1000}&until={until * 1000}"

    ours = Server(
        lambda: exhume_server(directory),
        "/api/recording",
        f"/api/subsecond?{window(first, last)}&rows={HEATMAP_ROWS}",
        lambda second: f"/api/flame?{window(first + second, first + second + WINDOW_S)}&least=0",
        list(directory.glob("*/*.parquet")),
    )
    theirs = Server(
        lambda: peer.server(profiles),
        "/profile/",
        f"/heatmap/?{query}&rows={HEATMAP_ROWS}",
        lambda second: f"/flamegraph/?{query}&start={second}&end={second + WINDOW_S}",
        [text],
    )
    our_times, their_times = Times(), Times()
    windows = range(max(1, last - first - WINDOW_S))
    for _ in range(rounds):
        one_start(ours, our_times, windows, last=False)
        one_start(theirs, their_times, windows, last=False)
    both = [median(times.heatmap_cold) + median(times.flame_cold) for times in (our_times, their_times)]
    name = f"first heatmap and first {WINDOW_S} s flame graph"
    return _Peer(
        f""" FlameScope reads the text of the same perf.data, and exhume's server what was imported of it; both answer
        on loopback, right after a start, with files that are not in the page cache (median of {rounds} starts).""",
        (
            Row(f"{name}, once imported / FlameScope's", both[0] / both[1], "", 1 / 10, 1 / 50, digits=3),
            Row(f"{name}, exhume", both[0], "s", digits=3),
            Row(f"{name}, FlameScope", both[1], "s", digits=3),
        ),
    )


def _seconds(command: list[str], output: Path | None = None) -> float:
    began = time.monotonic()
    with (output or Path(os.devnull)).open("wb") as sink:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.PIPE, check=False)
    if ended.returncode:
        raise BenchError(f"{command[0]} {command[1]} failed: {ended.stderr.decode(errors='replace')[-300:]}")
    return time.monotonic() - began


def _import(files: list[Path], directory: Path) -> float:
    shutil.rmtree(directory, ignore_errors=True)
    command = [str(EXHUME), "import", *map(str, files), "--dir", str(directory), "--start", START, "--utc"]
    return _seconds(command)


def _fastest(rounds: int, path: Path) -> tuple[float, float]:
    """Seconds of perf script and of an import, in turns."""
    pairs = [
        (_seconds(["perf", "script", "-i", str(path)]), _import([path], path.with_suffix(".imported")))
        for _ in range(rounds)
    ]
    return min(perf for perf, _ in pairs), min(own for _, own in pairs)


def _printed(path: Path, text: Path) -> int:
    _seconds(["perf", "script", "-i", str(path)], text)
    return text.stat().st_size


def _text(files: list[Path], work: Path, rounds: int) -> tuple[float, float, int]:
    """Seconds that perf takes to print files, and that their text takes to be imported; the fastest of some."""
    whole = work / "text.txt"
    part = work / "part.txt"
    printing = 0.0
    with whole.open("wb") as sink:
        for path in files:
            printing += min(_seconds(["perf", "script", "-i", str(path)], part) for _ in range(rounds))
            with part.open("rb") as source:
                shutil.copyfileobj(source, sink)
    part.unlink()
    return printing, min(_import([whole], work / "text") for _ in range(rounds)), whole.stat().st_size


def _memory(path: Path, large: Path, size: int) -> int:
    """The most memory that importing a file of so many bytes takes, in all of its processes together."""
    copies = max(1, size // path.stat().st_size)
    _repeated(path, large, copies)
    shutil.rmtree(large.with_suffix(".imported"), ignore_errors=True)
    command = [str(EXHUME), "import", str(large), "--dir", str(large.with_suffix(".imported")), "--start", START]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max(most, _resident(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise BenchError("exhume import of the large file failed")
    return most


def _resident(pid: int) -> int:
    """Memory of a process and its children; what they share counts once."""
    total = 0
    for each in (pid, *_children(pid)):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def _children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _answers(directory: Path) -> tuple[float, float]:
    """Milliseconds of the heatmap of a recording, and of a flame graph of five seconds of it."""
    recording = Recording.open(directory)
    span = recording.span()
    assert span is not None
    began = time.monotonic()
    recording.cores(span, 400)
    heatmap = time.monotonic() - began
    middle = (span.since + span.until) // 2
    began = time.monotonic()
    build_tree(recording.profile(Window(middle, middle + 5 * NANOS)))
    return heatmap * 1000, (time.monotonic() - began) * 1000


def _shifted(path: Path, target: Path, number: int) -> Path:
    """A copy of a recording, as if it had been made later."""
    content = bytearray(path.read_bytes())
    first, last, words = _times(path)
    _move(content, words, number * (last - first + NANOS // 100))
    target.write_bytes(content)
    return target


def _repeated(path: Path, target: Path, copies: int) -> None:
    """A recording whose records are there many times, one after the other in time."""
    content = path.read_bytes()
    with path.open("rb") as file:
        header = read_header(_reading(file), len(content))
    start, end = header.data
    assert end is not None
    first, last, words = _times(path)
    with target.open("wb") as file:
        head = bytearray(content[:start])
        # No features: they would have to move. perf reads such a file as one that it had no time to finish.
        head[48:56] = ((end - start) * copies).to_bytes(8, "little")
        head[72:104] = bytes(32)
        file.write(head)
        for number in range(copies):
            moved = bytearray(content)
            _move(moved, words, number * (last - first + NANOS // 100))
            file.write(moved[start:end])


def _reading(file: IO[bytes]) -> Callable[[int, int], bytes]:
    def read(offset: int, size: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    return read


def _times(path: Path) -> tuple[int, int, npt.NDArray[np.int64]]:
    """The first and last sample of a recording, and where in the file the times of all records are, in bytes."""
    with path.open("rb") as file:
        header = read_header(_reading(file), path.stat().st_size)
        start, end = header.data
        layout = Layout(header.events[0])
        place = layout.places[SampleType.TIME]
        file.seek(start)
        at = start
        found, others = [], []
        for block in RecordReader(file, start, end, lambda *_: None).blocks():
            found.append(at + (block.of(Kind.SAMPLE) + place) * 8)
            for kind in (Kind.MMAP, Kind.MMAP2, Kind.COMM, Kind.FORK, Kind.EXIT, Kind.LOST):
                records = block.of(kind)
                times = layout.trailer(block, records, SampleType.TIME)
                # What perf itself wrote of the processes that were there has none.
                records = records if times is None else records[times > 0]
                others.append(at + layout.trailer_place(block, records, SampleType.TIME) * 8)
            at += int(block.starts[-1] + block.sizes(block.starts[-1:])[0]) * 8
    places = np.concatenate(found)
    content = np.fromfile(path, np.uint8)
    times = content[places[:, None] + np.arange(8)].copy().view("<u8")[:, 0]
    return int(times.min()), int(times.max()), np.concatenate([places, *others])


def _move(content: bytearray, places: npt.NDArray[np.int64], nanos: int) -> None:
    data = np.frombuffer(content, np.uint8)
    at = places[:, None] + np.arange(8)
    times = data[at].copy().view("<u8") + np.uint64(nanos)
    data[at] = times.view(np.uint8)
