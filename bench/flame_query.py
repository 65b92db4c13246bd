"""How fast a flame graph of five seconds comes out of a long recording, in process and as a command."""

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

from bench.high_rate import rate_hz
from bench.load import load
from bench.processes import EXHUME, BenchError, start_perf, watch
from bench.report import Row, Section
from bench.synthetic import CORES, WINDOW_S, Synthetic, synthetic
from exhume.model.window import Window
from exhume.present.flame import build_tree
from exhume.present.flame_page import FlamePage
from exhume.present.flame_svg import render_svg
from exhume.store.query import Recording

PERF_SECONDS = 60


def measure(work: Path, quick: bool) -> Section:
    data = synthetic(work, quick)
    rounds = 30 if quick else 200
    profile_warm = _timed(lambda window: _profile(data.directory, window), data.windows(rounds, 1), warm_up=True)
    warm = _timed(lambda window: _draw(data.directory, window), data.windows(rounds, 2), warm_up=True)
    cold = _timed_cold(data, data.windows(rounds // 2, 3))
    command = [_command(data, window, work / "bench.svg") for window in data.windows(10 if quick else 25, 4)]
    perf_script = _perf_script(work)
    return Section(
        "Flame graphs",
        f"""
        {rounds} windows of {WINDOW_S} s at random in a synthetic recording of {CORES} cores and
        {data.hours:g} hours ({_gigabytes(data.directory):.2f} GB). In process: the recording is opened
        anew, the window's samples are read and summed, the tree is built and drawn as SVG. Cold: the
        segment's files were dropped from the page cache. As a command: `exhume flame`, from start to exit.
        The bounds are held against the 95th percentile.
        """,
        [
            Row("5 s flame graph in process, cold, 95th percentile", _p95(cold), "ms", 100.0, 30.0, digits=1),
            Row("the same, cold, median", median(cold), "ms", digits=1),
            Row("the same, warm, 95th percentile", _p95(warm), "ms", digits=1),
            Row("the same, warm, median", median(warm), "ms", digits=1),
            Row("the sums alone (no drawing), warm, median", median(profile_warm), "ms", digits=1),
            Row("the whole `exhume flame` command, 95th percentile", _p95(command) / 1000, "s", 1.2, 0.6),
            Row("the whole `exhume flame` command, median", median(command) / 1000, "s"),
            Row(
                "perf script --time and collapsing, 5 s",
                perf_script,
                "s",
                note=f"of a perf.data file of {PERF_SECONDS} s with as many samples a second, which perf reads whole",
            ),
        ],
    )


def _profile(directory: Path, window: Window) -> None:
    if not Recording.open(directory).profile(window).samples:
        raise BenchError("a window of the synthetic recording was empty")


def _draw(directory: Path, window: Window) -> None:
    profile = Recording.open(directory).profile(window)
    drawn = render_svg(build_tree(profile, None), FlamePage(title="bench", window="five seconds"))
    if "mem_cgroup" not in drawn and "python3" not in drawn:
        raise BenchError("a window of the synthetic recording was empty")


def _timed(job: Callable[[Window], None], windows: list[Window], *, warm_up: bool) -> list[float]:
    """Milliseconds of each; with a warm-up each window's files have been read just before."""
    taken = []
    for window in windows:
        if warm_up:
            job(window)
        begin = time.perf_counter()
        job(window)
        taken.append((time.perf_counter() - begin) * 1000)
    return taken


def _timed_cold(data: Synthetic, windows: list[Window]) -> list[float]:
    taken = []
    for window in windows:
        _drop_from_cache(data.directory, window)
        taken += _timed(lambda window: _draw(data.directory, window), [window], warm_up=False)
    return taken


def _drop_from_cache(directory: Path, window: Window) -> None:
    touched = [segment.path for segment in Recording.open(directory).segments if segment.name.may_hold(window)]
    for path in (path for segment in touched for path in segment.glob("*.parquet")):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _command(data: Synthetic, window: Window, output: Path) -> float:
    since, until = (f"@{moment / 1e9:.3f}" for moment in (window.since, window.until))
    words = [str(EXHUME), "flame", "--dir", str(data.directory), "--since", since, "--until", until, "-o", str(output)]
    return run_timed(words)


def run_timed(words: list[str]) -> float:
    """Milliseconds from start to exit."""
    begin = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    taken = (time.perf_counter() - begin) * 1000
    if done.returncode != 0:
        raise BenchError(f"{' '.join(words[1:3])} failed: {done.stderr[-500:]}")
    return taken


def _perf_script(work: Path) -> float:
    """The way it is done today: perf script for a range of a perf.data file, folded by a small script."""
    data = work / "peer.perf.data"
    with load():
        perf = start_perf(data, rate_hz())
        time.sleep(2)
        watch(PERF_SECONDS, perf)
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
            names = [re.sub(r"\+0x[0-9a-f]+$", "", line.split(None, 1)[-1]) for line in rest.splitlines()]
            folded[";".join([head.split()[0], *reversed(names)])] += 1
    return folded


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[18]


def _gigabytes(directory: Path) -> float:
    return sum(path.stat().st_size for path in directory.glob("*/*.parquet")) / 1e9
