"""How fast the page's server answers compared with Netflix's FlameScope, which answers the same two questions."""

import os
import random
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median

from bench.flamescope_server import VARIABLE, FlameScope, flamescope
from bench.high_rate import UNBOUNDED, WARM_UP_S, rate_hz
from bench.load import FORKS_PER_SECOND, load
from bench.processes import BenchError, NotMeasured, start_exhume, start_perf, watch
from bench.report import Row, Section
from bench.serving import Answer, Served, ask, exhume_server, highest_memory
from bench.sizes import recorded, sampled_ms
from bench.stack_answers import (
    Recorded,
    check_alike,
    check_as_many,
    check_recorded,
    exhume_graph,
    exhume_heatmap,
    flamescope_graph,
    flamescope_heatmap,
    read_script,
)
from bench.synthetic import WINDOW_S
from exhume.model.clock import MILLIS, NANOS

TITLE = "The page's server and FlameScope"
SMALL_HZ = 97
ROWS = 50
# FlameScope reads a large text for minutes on a slow machine.
PATIENCE_S = 600.0
MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class Both:
    """The same seconds, as exhume and as perf kept them."""

    directory: Path
    profiles: Path
    script: Path
    script_seconds: float
    samples: Recorded
    # What to add to the clock that both recorded by, to get the wall clock.
    wall_ns: int

    @property
    def seconds(self) -> int:
        """Whole seconds that perf recorded."""
        return int(self.samples.all[-1]) - self.samples.first_second

    def windows(self) -> range:
        """Where five seconds may begin so that both sampled them; on a busy machine both begin when they can."""
        first, last = (moment_ms / 1000 - self.samples.first_second for moment_ms in sampled_ms(self.directory))
        return range(max(1, ceil(first)), min(self.seconds, int(last)) - WINDOW_S + 1)

    def query(self, since: float, until: float) -> str:
        """Seconds of the clock that both recorded by, in the milliseconds that the page asks with."""
        wall = [(int(moment * NANOS) + self.wall_ns) // MILLIS for moment in (since, until)]
        return f"since={wall[0]}&until={wall[1]}"


@dataclass(frozen=True, slots=True)
class Server:
    """One of the two: how it is started, what it is asked, and the files that it reads."""

    start: Callable[[], AbstractContextManager[Served]]
    first: str
    heatmap: str
    flame: Callable[[int], str]
    files: list[Path]

    def forget(self) -> None:
        """Drop its files from the page cache."""
        for path in self.files:
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


@dataclass(slots=True)
class Times:
    """Seconds of each answer, and the most memory that the server took, in MB."""

    start: list[float] = field(default_factory=list)
    heatmap_cold: list[float] = field(default_factory=list)
    heatmap_warm: list[float] = field(default_factory=list)
    flame_cold: list[float] = field(default_factory=list)
    flame_warm: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


def measure(work: Path, quick: bool) -> Section:
    if not os.environ.get(VARIABLE):
        raise NotMeasured(TITLE, f"set {VARIABLE} to a checkout of Netflix's FlameScope (CONTRIBUTING.md, Costs)")
    peer = flamescope(work.parent)
    small_s, large_s = (20, 15) if quick else (120, 60)
    rounds = 2 if quick else 3
    cores = len(os.sched_getaffinity(0))
    rows = _compared(peer, _record(work / "small", SMALL_HZ, small_s), rounds, cores)
    rows += _compared(peer, _record(work / "large", rate_hz(), large_s), rounds, 96)
    return Section(
        TITLE,
        f"""
        `exhume record` and `perf record -g -a` run together at the same rate while every core compresses and
        {FORKS_PER_SECOND} processes a second come and go: at {SMALL_HZ} Hz, and at {rate_hz()} Hz, which gives these
        {cores} cores the samples of 96 at {SMALL_HZ} Hz. They are two samplers, so the samples are not the same ones,
        but those of the same cores in the same seconds (exhume has more of them, and is asked for perf's only).
        FlameScope gets what its documentation asks for, the text of `perf script --header`. It runs unchanged
        from a checkout, with the versions of packages that it names, on this Python; only its address, its
        folder and its debug mode (off: on, it starts twice) are set from outside. Both servers listen on loopback
        and are asked by the same program: for the sub-second-offset heatmap of everything
        ({ROWS} rows), and for the flame graph of {WINDOW_S} s on all cores, no frame left out. Start: until the first
        answer, which lists what is there. First: the first such question after a start, the files dropped from the
        page cache; median of {rounds} starts. Again: the median of further ones, each flame graph of other seconds.
        Compared is only what is right: FlameScope's answers have to hold the samples that perf recorded, exhume's
        as many, and both the same functions of the kernel with like shares. What they don't do:
        FlameScope doesn't record, needs the text written first, and forgets cores, threads and the time of day; but
        it reads any `perf script` text, and other profilers' files. exhume reads only its own recordings, and its
        server holds more libraries in memory; it answers by core, process and container, too, and while it is being
        recorded. What the browsers then draw is not measured here: FlameScope's page has to be built first.
        """,
        rows,
    )


def _compared(peer: FlameScope, data: Both, rounds: int, cores: int) -> list[Row]:
    kept = recorded(data.directory)
    ours, theirs = _exhume(data), _flamescope(peer, data)
    our_times, their_times = Times(), Times()
    for last in (number == rounds - 1 for number in range(rounds)):
        one_start(ours, our_times, data.windows(), last)
        one_start(theirs, their_times, data.windows(), last)
    _check(ours, theirs, data)
    of = f"{data.seconds} s as of {cores} cores"
    text_bytes = data.script.stat().st_size
    data.script.unlink()
    sizes = (
        f"exhume: {kept.samples:,} samples in {kept.bytes / MEBI:.1f} MB; "
        f"perf: {len(data.samples.all):,} in {text_bytes / MEBI:,.0f} MB of text"
    )
    rows = [Row(f"{of}: `perf script`, before FlameScope can read", data.script_seconds, "s", note=sizes)]
    for measure, name in (
        ("start", "start"),
        ("heatmap_cold", "heatmap, first"),
        ("heatmap_warm", "heatmap, again"),
        ("flame_cold", f"{WINDOW_S} s flame graph, first"),
        ("flame_warm", f"{WINDOW_S} s flame graph, again"),
    ):
        for who, times in (("exhume", our_times), ("FlameScope", their_times)):
            rows.append(Row(f"{of}: {name}, {who}", median(getattr(times, measure)), "s", digits=3))
    for who, times in (("exhume", our_times), ("FlameScope", their_times)):
        rows.append(Row(f"{of}: highest memory of the server, {who}", max(times.memory), "MB", digits=0))
    return rows


def _record(place: Path, rate: int, seconds: int) -> Both:
    directory, data = place.with_name(f"{place.name}-exhume"), place.with_name(f"{place.name}.perf.data")
    profiles = place.with_name(f"{place.name}-profiles")
    profiles.mkdir()
    with load():
        exhume = start_exhume(directory, rate, *UNBOUNDED)
        time.sleep(WARM_UP_S)
        # The clock that exhume goes by, so that both mean the same five seconds.
        perf = start_perf(data, rate, "-k", "CLOCK_MONOTONIC")
        watch(seconds, exhume, perf)
        wall_ns = time.time_ns() - time.monotonic_ns()
    perf.finish()
    exhume.finish()
    script = profiles / "stacks"
    began = time.perf_counter()
    with script.open("wb") as sink:
        args = ["perf", "script", "--header", "-i", str(data)]
        subprocess.run(args, stdout=sink, stderr=subprocess.DEVNULL, check=False)
    taken = time.perf_counter() - began
    data.unlink()
    samples = read_script(script)
    # Only what is on the disk can be dropped from the page cache.
    os.sync()
    both = Both(directory, profiles, script, taken, samples, wall_ns)
    if len(both.windows()) < seconds / 2:
        raise BenchError(f"of {seconds} s both recorded only {len(both.windows())}: measure again when it is quiet")
    return both


def _exhume(data: Both) -> Server:
    def flame(second: int) -> str:
        since = data.samples.first_second + second
        return f"/api/flame?{data.query(since, since + WINDOW_S)}&least=0"

    return Server(
        lambda: exhume_server(data.directory),
        "/api/recording",
        f"/api/subsecond?{data.query(data.samples.all[0], data.samples.all[-1])}&rows={ROWS}",
        flame,
        list(data.directory.glob("*/*.parquet")),
    )


def _flamescope(peer: FlameScope, data: Both) -> Server:
    query = f"filename={data.script.name}&type=perf"
    return Server(
        lambda: peer.server(data.profiles),
        "/profile/",
        f"/heatmap/?{query}&rows={ROWS}",
        lambda second: f"/flamegraph/?{query}&start={second}&end={second + WINDOW_S}",
        [data.script],
    )


def one_start(server: Server, times: Times, windows: range, last: bool) -> None:
    """One start and its first answers: the heatmap, then a flame graph; the last time, more of both."""
    draw = random.Random(len(times.start))
    server.forget()
    began = time.perf_counter()
    with server.start() as served:
        ask(served.address, server.first)
        times.start.append(time.perf_counter() - began)
        times.heatmap_cold.append(_ask(served, server.heatmap).seconds)
        server.forget()
        times.flame_cold.append(_ask(served, server.flame(draw.choice(windows))).seconds)
        for _ in range(10 if last else 0):
            times.heatmap_warm.append(_ask(served, server.heatmap).seconds)
            times.flame_warm.append(_ask(served, server.flame(draw.choice(windows))).seconds)
        times.memory.append(highest_memory(served.pid))


def _ask(served: Served, path: str) -> Answer:
    return ask(served.address, path, PATIENCE_S)


def _check(ours: Server, theirs: Server, data: Both) -> None:
    """Both answered what was recorded, in everything and in three stretches of it."""
    with ours.start() as here, theirs.start() as there:
        found = flamescope_heatmap(_ask(there, theirs.heatmap).body)
        check_recorded("FlameScope's heatmap", found, (len(data.samples.certainly_busy), len(data.samples.all)))
        check_as_many(exhume_heatmap(_ask(here, ours.heatmap).body), found)
        windows = data.windows()
        for second in (windows[0], windows[len(windows) // 2], windows[-1]):
            since = data.samples.first_second + second
            graph = flamescope_graph(_ask(there, theirs.flame(second)).body)
            check_recorded("FlameScope's flame graph", graph.samples, data.samples.bounds(since, since + WINDOW_S))
            check_alike(exhume_graph(_ask(here, ours.flame(second)).body), graph)
