"""What recording a large node costs: two cores sampled at 4,656 Hz stand for 96 cores at 97 Hz."""

import os
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.load import load
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


def measure(work: Path, quick: bool) -> Section:
    seconds = 60 if quick else 900
    rate, directory = rate_hz(), work / "high-rate"
    with load():
        time.sleep(1)
        exhume = start_exhume(directory, rate, *UNBOUNDED)
        time.sleep(WARM_UP_S)
        (cpu,) = watch(seconds, exhume)
        exhume.finish()
    rss = np.array(exhume.rss) / MEBI
    half = rss[len(rss) // 2 :]
    # Megabytes that an hour would add at the pace of the last half.
    growth = float(np.polyfit(np.arange(len(half)), half, 1)[0]) * 3600
    taken, kept_rate = _taken(directory)
    return Section(
        "Recording a large node",
        f"""
        `exhume record --rate {rate}` for {seconds} s under the same load, its budgets lifted so that it
        does not save itself by lowering its rate. Resident memory is read every second; an hour's figure is
        the highest that was seen, plus what the trend of the last half would add in an hour if it rises.
        """,
        [
            Row("CPU at 9,300 samples a second", 100 * cpu / seconds, "% of one core", 8.0, 3.0),
            Row(
                "resident memory after an hour-equivalent",
                float(rss.max()) + max(0.0, growth),
                "MB",
                150.0,
                90.0,
                digits=1,
            ),
            Row("highest resident memory seen", float(rss.max()), "MB", digits=1),
            Row("middle resident memory, first half", float(np.median(rss[: len(rss) // 2])), "MB", digits=1),
            Row("middle resident memory, last half", float(np.median(half)), "MB", digits=1),
            Row("trend of the last half, for an hour", growth, "MB", digits=1),
            Row(
                "samples taken a second",
                taken,
                "",
                digits=0,
                note=f"idle ones included; the rate stayed at {kept_rate} Hz",
            ),
        ],
    )


def _taken(directory: Path) -> tuple[float, str]:
    """Samples taken in a middle second, busy or idle, and the rates that the recorder ran at."""
    sampling = pq.read_table([str(path) for path in sorted(directory.glob("*/sampling.parquet"))])
    if not sampling.num_rows:
        raise BenchError("the recorder took no samples")
    _, place = np.unique(sampling["time"].to_numpy(), return_inverse=True)
    total = np.bincount(place, sampling["busy"].to_numpy().astype(float) + sampling["idle"].to_numpy())
    own = pq.read_table([str(path) for path in sorted(directory.glob("*/self.parquet"))], columns=["rate_hz"])
    rates = sorted(set(own["rate_hz"].to_pylist()))
    return float(np.median(total)), " to ".join(str(rate) for rate in {rates[0], rates[-1]})
