"""How long a diagnosis of a large node takes, as a command: an incident, ten minutes, and the whole recording."""

import json
import subprocess
import time
from pathlib import Path
from statistics import median

from bench.processes import EXHUME, BenchError
from bench.report import Row, Section
from bench.synthetic import CORES, Synthetic, synthetic
from exhume.cli import exit_codes
from exhume.model.clock import NANOS
from exhume.model.tables import INCIDENT
from exhume.store.read.recording import Recording

TEN_MINUTES = 600


def measure(work: Path, quick: bool) -> Section:
    data = synthetic(work, quick)
    rounds = 3 if quick else 7
    marks = Recording.open(data.directory).events(kinds=[INCIDENT])
    if not marks:
        raise BenchError("nothing is marked in the synthetic recording")
    cpu = marks[0].cpu
    around = (marks[0].wall // NANOS - TEN_MINUTES // 2, marks[0].wall // NANOS + TEN_MINUTES // 2)
    calm = data.span.since // NANOS + 60
    return Section(
        "Diagnosis",
        f"""
        `exhume diagnose --json` on a synthetic recording of {CORES} cores and {data.hours:g} hours, from start to exit,
        median of {rounds} runs with the files in the page cache. The incident in it has to be found: its core is
        compared.
        """,
        [
            Row("the incident, found by its mark", _seconds(data, [], rounds, cpu), "s", 10.0, 5.0),
            Row("ten minutes around it", _seconds(data, _window(*around), rounds, cpu), "s", 3.0, 1.5),
            Row("ten calm minutes", _seconds(data, _window(calm, calm + TEN_MINUTES), rounds), "s", 3.0, 1.5),
            Row("the whole recording", _seconds(data, ["--last", "1000h"], 1, cpu), "s"),
        ],
    )


def _window(since: int, until: int) -> list[str]:
    return ["--since", f"@{since}", "--until", f"@{until}"]


def _seconds(data: Synthetic, args: list[str], rounds: int, cpu: int | None = None) -> float:
    """The median of so many runs; `cpu` is the core that the first finding has to be about."""
    taken = []
    command = [str(EXHUME), "diagnose", "--dir", str(data.directory), "--json", *args]
    for _ in range(rounds):
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        taken.append(time.perf_counter() - begin)
        # A calm time has no findings.
        expected = (exit_codes.FINDINGS,) if cpu is not None else (exit_codes.OK, exit_codes.FINDINGS)
        if done.returncode not in expected:
            raise BenchError(f"exhume diagnose failed: {done.stderr[-500:]}")
        if cpu is not None and json.loads(done.stdout)["findings"][0]["culprit"]["cpu"] != cpu:
            raise BenchError(f"the incident on core {cpu} was not found")
    return median(taken)
