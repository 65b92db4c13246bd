"""A long recording at a large node's rate: what the memory does over an hour, minute by minute (bench/SOAK.md).

    python -m bench.soak [--minutes 60] [--idle]

The load is that of the large node in high_rate.py. With --idle its processes have the idle scheduling class, so that
other work on the machine comes first; memory does not care, so the figure is as good, but CPU is then left out.
"""

import argparse
import os
import shutil
import sys
import time
from datetime import UTC, datetime

import numpy as np

from bench.high_rate import MEBI, UNBOUNDED, few_forks, rate_hz, samples_taken
from bench.load import load
from bench.processes import BenchError, start_exhume, watch
from bench.report import machine_facts
from bench.run import ROOT, WORK, cannot_run

RESULTS = ROOT / "bench" / "SOAK.md"
BOUND_MB = 150.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--idle", action="store_true", help="the load gives way to everything else")
    arguments = parser.parse_args()
    problem = cannot_run()
    if problem:
        print(f"soak: {problem}", file=sys.stderr)
        return 2
    try:
        return soak(arguments.minutes, arguments.idle)
    except BenchError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2


def soak(minutes: int, idle: bool) -> int:
    directory = WORK.parent / "soak"
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(exist_ok=True)
    exhume = start_exhume(directory, rate_hz(), *UNBOUNDED)
    if idle:
        # Inherited by the load's processes, which start below; the recorder runs already.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    highest: list[float] = []
    cpu = 0.0
    with load(few_forks()):
        began = time.monotonic()
        for minute in range(minutes):
            exhume.rss.clear()
            (used,) = watch(began + 60 * (minute + 1) - time.monotonic(), exhume)
            cpu += used
            highest.append(max(exhume.rss) / MEBI)
            print(f"minute {minute + 1}: {highest[-1]:.1f} MB at most, {used / 0.6:.2f}% of a core", flush=True)
        exhume.finish()
    taken, rates = samples_taken(directory)
    RESULTS.write_text(_document(idle, highest, cpu, taken, rates))
    print(f"written to {RESULTS}")
    shutil.rmtree(directory)
    return int(max(highest) > BOUND_MB)


def _document(idle: bool, highest: list[float], cpu: float, taken: float, rates: str) -> str:
    minutes = len(highest)
    tenth = max(1, minutes // 10)
    spans = [(begin, min(begin + tenth, minutes)) for begin in range(0, minutes, tenth)]
    late = np.array(highest[len(highest) // 2 :])
    slope = float(np.polyfit(np.arange(len(late)), late, 1)[0]) * 60 if len(late) > 1 else 0.0
    yielded = " The load gave way to other work on the machine." if idle else ""
    cost = "" if idle else f" It took {cpu / minutes / 0.6:.2f}% of a core."
    lines = [
        "# An hour at a large node's rate",
        "",
        f"Written by `make soak` on {datetime.now(UTC):%Y-%m-%d}: `exhume record --rate {rate_hz()}` for {minutes} "
        f"minutes, {taken:,.0f} samples a second (the rate stayed at {rates} Hz).{yielded}{cost}",
        "",
        *[f"- {name}: {value}" for name, value in machine_facts().items()],
        "",
        "| minutes | highest resident memory |",
        "|---|---|",
        *[f"| {begin + 1} to {end} | {max(highest[begin:end]):.1f} MB |" for begin, end in spans],
        "",
        f"Highest of all: {max(highest):.1f} MB; must: {BOUND_MB:.0f} MB. "
        f"Trend of the last half: {slope:+.1f} MB an hour.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
