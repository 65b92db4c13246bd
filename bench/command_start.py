"""How fast the command itself is there."""

from pathlib import Path
from statistics import median

from bench.flame_query import run_timed
from bench.processes import EXHUME
from bench.report import Row, Section


def measure(work: Path, quick: bool) -> Section:
    del work
    rounds = 10 if quick else 30
    run_timed([str(EXHUME), "--help"])
    taken = [run_timed([str(EXHUME), "--help"]) / 1000 for _ in range(rounds)]
    perf = [run_timed(["perf", "version"]) / 1000 for _ in range(rounds)]
    return Section(
        "The command",
        f"Median of {rounds} runs from start to exit, after one to warm up.",
        [
            Row("`exhume --help`", median(taken), "s", 0.25, 0.12, digits=3),
            Row("`perf version`", median(perf), "s", digits=3),
        ],
    )
