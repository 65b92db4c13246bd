"""The fleet report over a synthetic lake of ten thousand nodes and seven days, in this process and on Ray; and how
often it names what was planted."""

import os
import shutil
import subprocess
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np

import exhume
from bench.processes import EXHUME, BenchError
from bench.report import Row, Section
from bench.venvs import venv_with
from exhume.fleet.engines.local import LocalEngine
from exhume.fleet.report import FleetReport, report
from exhume.lab.fleet import FleetPlan, last_full_hour, write_fleet
from exhume.model.clock import NANOS, Window

NODES, DAYS, FLEETS = 10_000, 7, 20
# Kinds of clusters and their sizes, one after the other.
CLUSTERS = [(kind, size) for kind in ("rack", "job", "wave") for size in (5, 10, 20, 50)]
CLUSTERED_FLEETS = 4 * len(CLUSTERS)
# So many days that one worker of Ray takes half a minute or more: what is done once for a report counts little then.
RAY_DAYS = 42
# One worker and two in turns, so often; the fastest of each counts.
RAY_ROUNDS = 2
# The share of one worker's time that two may take.
MUST, AIM = 1 / 1.5, 1 / 1.8
UNTIL = last_full_hour(1_772_971_200 * NANOS)
PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
DAY_NS = 86_400 * NANOS


def measure(work: Path, quick: bool) -> Section:
    nodes, days, fleets = (500, 1, 3) if quick else (NODES, DAYS, FLEETS)
    clustered = 3 if quick else CLUSTERED_FLEETS
    python = _ray_python(work.parent)
    lake = work / "fleet-lake"
    writing = _write(lake, nodes, days)
    size = sum(path.stat().st_size for path in lake.rglob("*.parquet"))
    rows = nodes * days * 1440
    _report(lake, days)
    seconds, peak = min(_report(lake, days) for _ in range(1 if quick else 3))
    first = [_ranked_first(work / f"planted-{seed}", _plan(10_000 + seed, cause=True)) for seed in range(fleets)]
    alarms = [_alarms(work / f"none-{seed}", _plan(20_000 + seed, cause=False)) for seed in range(fleets)]
    next_to = [_ranked_first(work / f"next-{seed}", _clustered(30_000, seed, cause=True)) for seed in range(fleets)]
    in_clusters = [_alarms(work / f"in-{seed}", _clustered(40_000, seed, cause=False)) for seed in range(clustered)]
    ray_days = 2 if quick else RAY_DAYS
    ray = _ray_rows(python, work, lake, nodes, (days, ray_days))
    return Section(
        "Fleet",
        f"""
        `exhume lab fleet` writes {nodes:,} nodes and {days} days ({rows / 1e6:.0f} million minutes,
        {size / 1e9:.1f} GB); `exhume fleet report` then reads all of them, from start to exit, fastest of three, files
        in the page cache. The memory is the most that was resident. The fleets are of 400 to 1,500 nodes and one to
        three days with 5 to 50% sick, 3 to 5 confounders and 2% wrong labels; the planted attribute or pair has to be
        the first, by itself. Fleets with clusters have them by rack, job or wave of a rollout, of 5, 10, 20 or 50 nodes
        on average, and most attributes go with them; without a cause two clusters or more are sick, next to a cause
        some have another trouble. A false alarm is any attribute or change that is named. Ray reads that lake and one
        of {ray_days} days, with one and two workers of a core each in turns, the fastest of {RAY_ROUNDS}; the driver
        and Ray's own processes share the machine's two cores with them. What the driver does once for a report (listing
        files, sorting merged rows, statistics) takes no less with two workers: the bound is for a lake that is big
        enough for it not to matter.
        """,
        [
            Row("lake written", writing, "s", digits=1),
            Row("lake, a node and day without bundles", size / nodes / days / 1000, "KB", 300, 100, digits=0),
            Row("fleet report", seconds, "s", 60, 15, digits=1),
            Row("fleet report, memory", peak / 1e9, "GB", 4, 2),
            Row(f"planted cause not first, of {fleets} fleets", first.count(False) / fleets, "", 0.05, 0.0),
            Row(f"false alarms, of {fleets} fleets", alarms.count(True) / fleets, "", 0.05, 0.0),
            Row(
                f"planted cause not first next to sick clusters, of {fleets} fleets",
                next_to.count(False) / fleets,
                "",
                0.05,
                0.0,
            ),
            Row(
                f"false alarms where sick nodes come in clusters, of {clustered} fleets",
                in_clusters.count(True) / clustered,
                "",
                0.05,
                0.0,
            ),
            *ray,
        ],
    )


def _at() -> str:
    return f"@{UNTIL // NANOS}"


def _write(lake: Path, nodes: int, days: int) -> float:
    """Write a lake; returns how long it took."""
    began = time.monotonic()
    size = ["--nodes", str(nodes), "--days", str(days)]
    _run([str(EXHUME), "lab", "fleet", *size, "--dir", str(lake), "--until", _at()])
    return time.monotonic() - began


def _arguments(lake: Path, days: float) -> list[str]:
    return ["fleet", "report", "--lake", str(lake), "--since", f"{days}d", "--until", _at(), "--json"]


def _run(command: list[str], codes: tuple[int, ...] = (0,), **variables: str) -> None:
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode not in codes:
        raise BenchError(f"{' '.join(command[1:3])} failed: {done.stderr[-300:]}")


def _report(lake: Path, days: float) -> tuple[float, int]:
    """Seconds and the greatest resident memory of a report."""
    began = time.monotonic()
    process = subprocess.Popen([str(EXHUME), *_arguments(lake, days)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 1:
        raise BenchError(f"exhume fleet report ended with {process.returncode}")
    return time.monotonic() - began, used.ru_maxrss * 1024


def _plan(seed: int, *, cause: bool, clusters: str = "", size: int = 20) -> FleetPlan:
    rng = np.random.default_rng(seed)
    nodes, sick, days = int(rng.integers(400, 1500)), float(rng.uniform(0.05, 0.5)), round(float(rng.uniform(1, 3)), 1)
    return FleetPlan(nodes, days, UNTIL, seed, sick, cause=cause, agent=False, clusters=clusters, cluster_size=size)


def _clustered(first: int, number: int, *, cause: bool) -> FleetPlan:
    kind, size = CLUSTERS[number % len(CLUSTERS)]
    return _plan(first + number, cause=cause, clusters=kind, size=size)


def _found(directory: Path, plan: FleetPlan) -> FleetReport:
    engine = LocalEngine()
    try:
        return report(str(directory), Window(UNTIL - int(plan.days * DAY_NS), UNTIL), engine)
    finally:
        engine.close()
        shutil.rmtree(directory)


def _ranked_first(directory: Path, plan: FleetPlan) -> bool:
    truth = write_fleet(directory, plan).truth.conditions
    found = _found(directory, plan).first
    return found is not None and {each.key: each.value for each in found.conditions} == truth


def _alarms(directory: Path, plan: FleetPlan) -> bool:
    write_fleet(directory, plan)
    found = _found(directory, plan)
    return bool(found.separators or found.changes)


# Times the queries on a cluster with so many cores, which starts before and is not part of it.
_ON_RAY = """
import sys, time
from exhume.fleet.engines.ray import RayEngine
from exhume.fleet.report import FleetReport, report
from exhume.model.clock import Window
lake, cores, since, until = sys.argv[1], *map(int, sys.argv[2:])
engine = RayEngine("local", cores)
report(lake, Window(until - 7200 * 10**9, until), engine)
began, used = time.monotonic(), time.process_time()
report(lake, Window(since, until), engine)
print(time.monotonic() - began, time.process_time() - used)
"""


class RayTimes(NamedTuple):
    """A report on Ray: seconds with one worker and with two, and CPU seconds of the driver."""

    days: int
    one: float
    two: float
    driver: float

    @property
    def ratio(self) -> float:
        return self.two / self.one


def _ray_python(build: Path) -> Path:
    """A Python with Ray and the program's dependencies."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    return venv_with(build / "ray-venv", [*project["dependencies"], *project["optional-dependencies"]["ray"]])


def _ray_rows(python: Path, work: Path, lake: Path, nodes: int, days: tuple[int, int]) -> list[Row]:
    """Measure two sizes; the smaller one is the lake that is there, which is removed."""
    small = _on_ray(python, lake, days[0])
    shutil.rmtree(lake)
    big_lake = work / "ray-lake"
    _write(big_lake, nodes, days[1])
    big = _on_ray(python, big_lake, days[1])
    shutil.rmtree(big_lake)
    return ray_rows(small, big)


def ray_rows(small: RayTimes, big: RayTimes) -> list[Row]:
    name = "fleet report on Ray, 2 workers / 1"
    return [
        Row(f"{name}, {big.days} days", big.ratio, "", MUST, AIM),
        Row(f"the same with 1 worker, {big.days} days", big.one, "s", digits=1),
        Row(f"the same, CPU time of what is done once, {big.days} days", big.driver, "s", digits=1),
        Row(f"{name}, {small.days} days", small.ratio, note=_size_note(small, big)),
        Row(f"the same with 1 worker, {small.days} days", small.one, "s", digits=1),
        Row(f"the same, CPU time of what is done once, {small.days} days", small.driver, "s", digits=1),
    ]


def _size_note(small: RayTimes, big: RayTimes) -> str:
    """Why the smaller size has no bound, and from which size on the bound is met."""
    share = small.driver / small.one
    why = f"without a bound, as {share:.0%} of one worker's time is what is done once"
    found = days_needed(small, big)
    if found is None:
        return why
    return f"{why}; {MUST:.2f} is reached from {found:.0f} days on, by straight lines through both sizes"


def days_needed(small: RayTimes, big: RayTimes) -> float | None:
    """The days from which on two workers need at most MUST of one worker's time, if the time of both is a fixed part
    and one that grows with the days; None if the bound is not reached."""
    span = big.days - small.days
    one, two = (big.one - small.one) / span, (big.two - small.two) / span
    fixed_one, fixed_two = small.one - one * small.days, small.two - two * small.days
    saved, excess = MUST * one - two, fixed_two - MUST * fixed_one
    return max(0.0, excess / saved) if saved > 0 else None


def _on_ray(python: Path, lake: Path, days: int) -> RayTimes:
    seconds: dict[int, list[float]] = {1: [], 2: []}
    driver = []
    for _ in range(RAY_ROUNDS):
        for cores, taken in seconds.items():
            command = [str(python), "-c", _ON_RAY, str(lake), str(cores), str(UNTIL - int(days * DAY_NS)), str(UNTIL)]
            environment = os.environ | {"PYTHONPATH": str(Path(exhume.__file__).parents[1])}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                raise BenchError(f"the report on Ray failed: {done.stderr[-300:]}")
            wall, used = map(float, done.stdout.split()[-2:])
            taken.append(wall)
            driver.append(used)
    return RayTimes(days, min(seconds[1]), min(seconds[2]), min(driver))
