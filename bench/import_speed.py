"""How fast files of other tools become a recording, next to `perf script` of the same files, and in how much memory."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from bench.load import load
from bench.processes import EXHUME, BenchError, start_perf, watch
from bench.report import Row, Section
from exhume.collect.perf.attr import SampleType
from exhume.interop.importers.perf_data.header import read_header
from exhume.interop.importers.perf_data.records import Kind, Layout, RecordReader
from exhume.model.clock import NANOS, Window
from exhume.store.read.flame_tree import build_tree
from exhume.store.read.recording import Recording

# So many samples a second on each core give a hundred thousand in a few seconds.
RATE, SECONDS = 4999, 14
TEXT_BYTES = 150 << 20
LARGE_BYTES = 1 << 30
SERIES, SERIES_S, SERIES_RATE = 360, 120, 97
START = "2026-03-01T00:00:00Z"


def measure(work: Path, quick: bool) -> Section:
    dense, sparse = work / "dense.data", work / "sparse.data"
    _record(dense, RATE, 4 if quick else SECONDS)
    _record(sparse, SERIES_RATE, 10 if quick else SERIES_S)
    rounds = 1 if quick else 2
    perf, data = _fastest(rounds, dense)
    copies = max(1, round(TEXT_BYTES / max(1, _printed(dense, work / "one.txt")))) if not quick else 1
    texts = [_shifted(dense, work / f"text{number}.data", number) for number in range(copies)]
    printing, reading, text_bytes = _text(texts, work)
    large = work / "large.data"
    rss = _memory(dense, large, (32 << 20) if quick else LARGE_BYTES)
    files = [_shifted(sparse, work / f"series{number}.data", number) for number in range(6 if quick else SERIES)]
    script_sum = sum(_seconds(["perf", "script", "-i", str(path)]) for path in files)
    series = _import(files, work / "series")
    grid, flame = _answers(work / "series")
    return Section(
        "Imports",
        f"""
        The same files to `perf script`, which prints them to /dev/null, and to `exhume import`, from start to exit,
        with sealed segments and their indexes: perf.data of {SECONDS} s at {RATE} Hz under 900 forks a second; the text
        that `perf script` prints of it ({text_bytes >> 20} MB); {len(files)} files of {SERIES_S} s at {SERIES_RATE} Hz,
        which are one recording with shifted times. Fastest of {rounds}, wall time. What limits it: one core reads a
        file, as each record's place depends on the one before; segments are sealed on all cores.
        """,
        [
            Row("perf.data to a recording / perf script of it", data / perf, "", 1.0, 0.5),
            Row("the same, seconds of exhume import", data, "s"),
            Row("perf script text to a recording / the perf script that printed it", reading / printing, "", 1.5, 0.8),
            Row(
                f"memory, importing {large.stat().st_size / 1e9:.1f} GB of perf.data",
                rss / 1e6,
                "MB",
                400,
                250,
                digits=0,
            ),
            Row(
                f"{len(files)} files of two minutes / the sum of perf script of each", series / script_sum, "", 0.8, 0.4
            ),
            Row("heatmap of it", grid, "ms", digits=1),
            Row("5 s flame graph of it", flame, "ms", digits=1),
        ],
    )


def _record(path: Path, rate: int, seconds: float) -> None:
    with load():
        perf = start_perf(path, rate, "-k", "mono")
        watch(seconds, perf)
        perf.finish()


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


def _text(files: list[Path], work: Path) -> tuple[float, float, int]:
    """Seconds that perf takes to print files, and that their text takes to be imported."""
    whole = work / "text.txt"
    printing = 0.0
    with whole.open("wb") as sink:
        for path in files:
            part = work / "part.txt"
            printing += _seconds(["perf", "script", "-i", str(path)], part)
            with part.open("rb") as source:
                shutil.copyfileobj(source, sink)
    return printing, _import([whole], work / "text"), whole.stat().st_size


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
    """The first and last sample of a recording, and where in the file the times of records are, in bytes."""
    with path.open("rb") as file:
        header = read_header(_reading(file), path.stat().st_size)
        start, end = header.data
        layout = Layout(header.events[0])
        place = layout.places[SampleType.TIME]
        file.seek(start)
        at = start
        found = []
        for block in RecordReader(file, start, end, lambda *_: None).blocks():
            samples = block.of(Kind.SAMPLE)
            found.append(at + (samples + place) * 8)
            at += int(block.starts[-1] + block.sizes(block.starts[-1:])[0]) * 8
    places = np.concatenate(found)
    content = np.fromfile(path, np.uint8)
    times = content[places[:, None] + np.arange(8)].copy().view("<u8")[:, 0]
    return int(times.min()), int(times.max()), places


def _move(content: bytearray, places: npt.NDArray[np.int64], nanos: int) -> None:
    data = np.frombuffer(content, np.uint8)
    at = places[:, None] + np.arange(8)
    times = data[at].copy().view("<u8") + np.uint64(nanos)
    data[at] = times.view(np.uint8)
