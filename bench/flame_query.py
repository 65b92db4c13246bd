"""How fast a flame graph of five seconds comes out of a long recording, in process and as a command."""

import os
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from bench.high_rate import rate_hz
from bench.load import load
from bench.processes import EXHUME, BenchError, start_perf, watch
from bench.report import Row, Section
from bench.synthetic import CORES, WINDOW_S, Synthetic, synthetic
from exhume.model.clock import Window
from exhume.present.flame import FlameCaption, render_svg
from exhume.present.html.flame import flame_report
from exhume.store.read.flame_tree import build_tree
from exhume.store.read.recording import Recording

PERF_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Stages:
    """Milliseconds of one flame graph, stage by stage."""

    sums: float
    tree: float
    html: float
    svg: float


def measure(work: Path, quick: bool) -> Section:
    data = synthetic(work, quick)
    rounds = 20 if quick else 150
    warm = [_warm(data, window) for window in data.windows(rounds, 1)]
    cold = [_cold(data, window) for window in data.windows(rounds, 2)]
    graph_warm, graph_cold = ([run.sums + run.tree for run in runs] for runs in (warm, cold))
    command = [_command(data, window, work / "bench.svg") for window in data.windows(10 if quick else 25, 4)]
    return Section(
        "Flame graphs",
        f"""
        {rounds} windows of {WINDOW_S} s at random in a synthetic recording of {CORES} cores and
        {data.hours:g} hours ({_gigabytes(data.directory):.2f} GB). In process: the recording is opened
        again, the window's samples are read and summed, and the tree of frames is built; drawing it as a file
        is timed separately. Cold: the segment's files were dropped from the page cache. As a command: `exhume flame`
        to SVG, from start to exit. The bounds are held against the 95th percentile.
        """,
        [
            Row("5 s flame graph in process, cold, 95th percentile", p95(graph_cold), "ms", 50.0, 30.0, digits=1),
            Row("the same, cold, median", median(graph_cold), "ms", digits=1),
            Row("the same, warm, 95th percentile", p95(graph_warm), "ms", digits=1),
            Row("the same, warm, median", median(graph_warm), "ms", digits=1),
            Row("of it the sums, warm, median", median(run.sums for run in warm), "ms", digits=1),
            Row("drawing it as HTML, median", median(run.html for run in warm), "ms", digits=1),
            Row("drawing it as SVG, median", median(run.svg for run in warm), "ms", digits=1),
            Row("the whole `exhume flame` command, 95th percentile", p95(command) / 1000, "s", 1.2, 0.6),
            Row("the whole `exhume flame` command, median", median(command) / 1000, "s"),
            Row(
                "perf script --time and collapsing, 5 s",
                _perf_script(work),
                "s",
                note=f"of a perf.data file of {PERF_SECONDS} s with as many samples a second, which perf reads whole",
            ),
        ],
    )


def _draw(directory: Path, window: Window) -> Stages:
    page = FlameCaption(title="bench", window="five seconds")
    clock = [time.perf_counter()]
    profile = Recording.open(directory).profile(window)
    clock.append(time.perf_counter())
    tree = build_tree(profile, None)
    clock.append(time.perf_counter())
    flame_report(tree, page)
    clock.append(time.perf_counter())
    render_svg(tree, page)
    clock.append(time.perf_counter())
    if not profile.samples:
        raise BenchError("a window of the synthetic recording was empty")
    return Stages(*((after - before) * 1000 for before, after in pairwise(clock)))


def _warm(data: Synthetic, window: Window) -> Stages:
    """With the window's files in the page cache."""
    Recording.open(data.directory).profile(window)
    return _draw(data.directory, window)


def _cold(data: Synthetic, window: Window) -> Stages:
    _drop_from_cache(data.directory, window)
    return _draw(data.directory, window)


def _drop_from_cache(directory: Path, window: Window) -> None:
    touched = [segment.path for segment in Recording.open(directory).holding(window)]
    for path in (path for segment in touched for path in segment.glob("*.parquet")):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _command(data: Synthetic, window: Window, output: Path) -> float:
    since, until = (f"@{moment / 1e9:.3f}" for moment in (window.since, window.until))
    args = [str(EXHUME), "flame", "--dir", str(data.directory), "--since", since, "--until", until, "-o", str(output)]
    return run_timed(args)


def run_timed(args: list[str]) -> float:
    """Milliseconds from start to exit."""
    begin = time.perf_counter()
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    taken = (time.perf_counter() - begin) * 1000
    if done.returncode != 0:
        raise BenchError(f"{' '.join(args[1:3])} failed: {done.stderr[-500:]}")
    return taken


def _perf_script(work: Path) -> float:
    """The way it is done today: perf script for a range of a perf.data file, folded by a small script."""
    data = work / "peer.perf.data"
    with load():
        perf = start_perf(data, rate_hz())
        time.sleep(2)
        watch(PERF_SECONDS, perf)
    # Without the load: perf reads its whole file again at its end, which takes minutes next to it.
    perf.finish()
    first = subprocess.run(
        f"perf script -i {data} -F time 2>/dev/null | head -1", shell=True, capture_output=True, text=True, check=False
    ).stdout
    start = float(first.strip().rstrip(":")) + PERF_SECONDS / 2
    begin = time.perf_counter()
    script = subprocess.run(
        ["perf", "script", "-i", str(data), "--time", f"{start:.3f},{start + WINDOW_S:.3f}", "-F", "comm,pid,ip,sym"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    ).stdout
    folded = collapse(script)
    taken = time.perf_counter() - begin
    data.unlink()
    if not folded:
        raise BenchError("perf script found no samples in the window")
    return taken


def collapse(script: str) -> Counter[str]:
    """Folded stacks of a perf script text."""
    folded: Counter[str] = Counter()
    for block in script.split("\n\n"):
        head, _, rest = block.strip("\n").partition("\n")
        if head:
            names = [line.split(None, 1)[-1] for line in rest.splitlines()]
            folded[";".join([head.split()[0], *reversed(names)])] += 1
    return folded


def p95(values: list[float]) -> float:
    return quantiles(values, n=20)[18]


def _gigabytes(directory: Path) -> float:
    return sum(path.stat().st_size for path in directory.glob("*/*.parquet")) / 1e9
