"""What recording a large node costs: two cores sampled at 4,656 Hz stand for 96 cores at 97 Hz."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from bench.load import FORKS_PER_SECOND, load
from bench.processes import BenchError, start_exhume, watch
from bench.report import Row, Section

SAMPLES_PER_SECOND = 96 * 97
WARM_UP_S = 15
MEBI = 1 << 20
# The measure is what it costs, so the recorder must not save itself by lowering its rate.
UNBOUNDED = ("--cpu-budget", "100%", "--memory-budget", "2G")


def rate_hz() -> int:
    """The rate at which this machine's cores give as many samples as 96 cores at 97 Hz."""
    return round(SAMPLES_PER_SECOND / len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True)
class Run:
    """One recording at the high rate: CPU seconds, resident megabytes second by second, samples."""

    seconds: int
    cpu: float
    rss: npt.NDArray[np.float64]
    taken: float
    rates: str

    @property
    def percent(self) -> float:
        return 100 * self.cpu / self.seconds

    @property
    def first_half(self) -> npt.NDArray[np.float64]:
        return self.rss[: len(self.rss) // 2]

    @property
    def last_half(self) -> npt.NDArray[np.float64]:
        return self.rss[len(self.rss) // 2 :]

    @property
    def growth(self) -> float:
        """Megabytes that an hour would add at the pace of the last half."""
        return float(np.polyfit(np.arange(len(self.last_half)), self.last_half, 1)[0]) * 3600


def few_forks() -> float:
    """On 96 cores short-lived processes have a 48th of the share of samples that they have on 2: so many fewer."""
    return FORKS_PER_SECOND * len(os.sched_getaffinity(0)) / 96


def measure(work: Path, quick: bool) -> Section:
    few = few_forks()
    large = _record(work / "large-node", 60 if quick else 300, few)
    forking = _record(work / "forking-node", 40 if quick else 60, FORKS_PER_SECOND)
    return Section(
        "Recording a large node",
        f"""
        `exhume record --rate {rate_hz()}` for {large.seconds} s while every core compresses, with its budgets
        lifted so that it does not save itself by lowering its rate. {few:.0f} processes a second come and go:
        short-lived ones then have the share of samples that {FORKS_PER_SECOND} a second would have on 96 cores.
        With all {FORKS_PER_SECOND} on these few cores (the last rows) every other sample lies in a process that
        lives for a millisecond: harder than any real node. Resident memory is read every second; an hour's
        figure is the highest that was seen, plus what the trend of the last half would add in an hour if it
        rises.
        """,
        [
            Row("CPU at 9,300 samples a second", large.percent, "% of one core", 8.0, 3.0),
            Row(
                "resident memory after an hour-equivalent",
                float(large.rss.max()) + max(0.0, large.growth),
                "MB",
                150.0,
                90.0,
                digits=1,
            ),
            Row("highest resident memory seen", float(large.rss.max()), "MB", digits=1),
            Row("middle resident memory, first half", float(np.median(large.first_half)), "MB", digits=1),
            Row("middle resident memory, last half", float(np.median(large.last_half)), "MB", digits=1),
            Row("trend of the last half, for an hour", large.growth, "MB", digits=1),
            Row(
                "samples taken a second",
                large.taken,
                "",
                digits=0,
                note=f"idle ones included; the rate stayed at {large.rates} Hz",
            ),
            Row(f"CPU with {FORKS_PER_SECOND} processes a second", forking.percent, "% of one core"),
            Row(
                f"highest resident memory with {FORKS_PER_SECOND} processes a second",
                float(forking.rss.max()),
                "MB",
                digits=1,
            ),
        ],
    )


def _record(directory: Path, seconds: int, forks_per_second: float) -> Run:
    with load(forks_per_second):
        time.sleep(1)
        exhume = start_exhume(directory, rate_hz(), *UNBOUNDED)
        time.sleep(WARM_UP_S)
        (cpu,) = watch(seconds, exhume)
        exhume.finish()
    return Run(seconds, cpu, np.array(exhume.rss) / MEBI, *samples_taken(directory))


def samples_taken(directory: Path) -> tuple[float, str]:
    """Samples taken a second, busy or idle, and the rates that the recorder ran at."""
    sampling = pq.read_table([str(path) for path in sorted(directory.glob("*/sampling.parquet"))])
    own = pq.read_table([str(path) for path in sorted(directory.glob("*/self.parquet"))])
    if not sampling.num_rows:
        raise BenchError("the recorder took no samples")
    taken = int(sampling["busy"].to_numpy().sum()) + int(sampling["idle"].to_numpy().sum())
    rates = sorted(set(own["rate_hz"].to_pylist()))
    # A late tick covers more than a second: the sum over the sum is the rate.
    return taken * 1000 / int(own["span_ms"].to_numpy().sum()), " to ".join(str(rate) for rate in rates)
