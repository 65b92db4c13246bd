"""A long recording at a large node's rate, with processes that come and go: what memory, open files and losses do over
two hours, minute by minute (bench/SOAK.md).

    python -m bench.soak [--minutes 120] [--idle]

The load is that of the large node in high_rate.py. With --idle its processes have the idle scheduling class, so that
other work on the machine comes first; memory does not care, so the figure is as good, but CPU is then left out.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench.high_rate import MEBI, UNBOUNDED, few_forks, rate_hz, samples_taken
from bench.load import load
from bench.processes import BenchError, start_exhume, watch
from bench.report import Row, as_table, machine_facts
from bench.run import ROOT, WORK, cannot_run
from exhume.store.read.recording import Recording

RESULTS = ROOT / "bench" / "SOAK.md"
MINUTES = 120
# The first minutes read symbols and fill the caches of the recorder: the trend is that of what follows.
SETTLING_MINUTES = 10


@dataclass(frozen=True, slots=True)
class Minute:
    """The most memory and the most open files of a minute, and the CPU seconds that it took."""

    rss_mb: float
    files: int
    cpu: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=MINUTES)
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
    passed: list[Minute] = []
    with load(few_forks()):
        began = time.monotonic()
        for minute in range(minutes):
            exhume.rss.clear()
            (used,) = watch(began + 60 * (minute + 1) - time.monotonic(), exhume)
            passed.append(Minute(max(exhume.rss) / MEBI, _open_files(exhume.process.pid), used))
            last = passed[-1]
            text = f"{last.rss_mb:.1f} MB at most, {last.files} open files, {used / 0.6:.2f}% of a core"
            print(f"minute {minute + 1}: {text}", flush=True)
        exhume.finish()
    taken, rates = samples_taken(directory)
    losses = Recording.open(directory).info().losses
    rows = soak_rows(passed, sum(losses.values()))
    sampled = f"{taken:,.0f} samples a second (the rate stayed at {rates} Hz)"
    RESULTS.write_text(_document(idle, passed, rows, losses, sampled))
    print(as_table(rows))
    print(f"written to {RESULTS}")
    shutil.rmtree(directory)
    return int(any(row.missed for row in rows))


def _open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def soak_rows(passed: Sequence[Minute], lost: int) -> list[Row]:
    """What has a bound: the trend of the memory, the open files, the losses."""
    settled = passed[SETTLING_MINUTES:] if len(passed) > 2 * SETTLING_MINUTES else passed[len(passed) // 2 :]
    memory = np.array([each.rss_mb for each in settled])
    slope = float(np.polyfit(np.arange(len(memory)), memory, 1)[0]) * 60 if len(memory) > 1 else 0.0
    files = [each.files for each in settled]
    return [
        Row("memory, trend of an hour", round(slope, 3), "MB", 0.5, 0.0, note=_trend_note(len(passed))),
        Row("highest resident memory", max(each.rss_mb for each in passed), "MB", 150.0, 90.0, digits=1),
        Row("open files, the last minute above the first", files[-1] - files[0], "", 0.0, 0.0, digits=0),
        Row("rows and samples lost", lost, "", 0.0, 0.0, digits=0),
    ]


def _trend_note(minutes: int) -> str:
    """What the trend is worth."""
    return "" if minutes >= MINUTES else f"of {minutes} minutes alone: caches are still filling, so this is no figure"


def _document(idle: bool, passed: list[Minute], rows: list[Row], losses: Mapping[str, int], sampled: str) -> str:
    minutes = len(passed)
    tenth = max(1, minutes // 10)
    spans = [(begin, min(begin + tenth, minutes)) for begin in range(0, minutes, tenth)]
    yielded = " The load gave way to other work on the machine." if idle else ""
    cost = "" if idle else f" It took {sum(each.cpu for each in passed) / minutes / 0.6:.2f}% of a core."
    named = ", ".join(f"{name} {number:,}" for name, number in losses.items()) or "none"
    lines = [
        f"# {minutes} minutes at a large node's rate",
        "",
        f"Written by `make soak` on {datetime.now(UTC):%Y-%m-%d}: `exhume record --rate {rate_hz()}` for {minutes} "
        f"minutes, {sampled}, with {few_forks():.0f} processes a second that come and go.{yielded}{cost}",
        "",
        *[f"- {name}: {value}" for name, value in machine_facts().items()],
        "",
        as_table(rows),
        *[f"- {row.measure}: {row.note}" for row in rows if row.note],
        "",
        f"Losses: {named}.",
        "",
        "| minutes | highest resident memory | open files |",
        "|---|---|---|",
        *[
            f"| {begin + 1} to {end} | {max(each.rss_mb for each in passed[begin:end]):.1f} MB "
            f"| {max(each.files for each in passed[begin:end])} |"
            for begin, end in spans
        ],
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
