"""The judge of the diagnosis: plays, records, diagnoses blindly and judges each run. A failed run counts too."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from exhume.control.files import lock_directory
from exhume.lab.leftovers import DEFAULT_WORK, Leftovers, clean
from exhume.lab.scenarios import scenario_named
from exhume.lab.score.plan import Outcome, Plan, ReportedFinding, others_busy
from exhume.lab.synth import write_synthetic
from exhume.model.errors import LabError
from exhume.model.isolation import isolated_environment, isolated_python

_PREPARING_S = 180.0
_ANSWERING_S = 120.0
_STOPPING_S = 40.0
_REST_S = 1.0
TRUTH = "run.json"
LARGE_CORES, LARGE_S = 96, 600.0
_ROUNDS = 3


class Failed(Exception):
    """A step of a run failed, for a reason given in a sentence."""


def judge(plans: list[Plan], work: Path | None = None, keep: Path | None = None) -> Iterator[Outcome]:
    """Yield the outcome of each plan as it becomes known. Recordings are kept in `keep` if given, with the truth next
    to them."""
    if os.geteuid() != 0:
        raise LabError("the scenarios are made for real, which needs root; run it with sudo")
    work = (work or DEFAULT_WORK).absolute()
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    alone = lock_directory(work)
    if alone < 0:
        raise LabError(f"another score is kept in {work}: both would judge each other's load; wait for its end")
    own = Leftovers.begin(work / f"score-{os.getpid()}-{time.monotonic_ns():x}")
    try:
        for plan in plans:
            directory = own.directory / f"{plan.number:03d}-{plan.name}{plan.suffix}"
            # During this time the kernel releases what the last run created.
            busy = others_busy(_REST_S)
            outcome, truth = _judged(plan, busy, directory, work)
            if keep is not None and directory.is_dir():
                kept = keep / directory.name
                shutil.rmtree(kept, ignore_errors=True)
                shutil.move(directory, kept)
                (kept / TRUTH).write_text(json.dumps(outcome.as_json() | truth, indent=1) + "\n")
            shutil.rmtree(directory, ignore_errors=True)
            yield outcome
    finally:
        own.undo()
        os.close(alone)


def judge_again(kept: Path) -> Iterator[Outcome]:
    """Judge kept recordings again, with the current diagnosis. Needs no root."""
    for path in kept_runs(kept):
        truth = json.loads(path.read_text())
        outcome = _judged(Plan.of(truth), truth["others_busy"], path.parent)[0]
        yield replace(outcome, **_known(truth))


def large_node_seconds(work: Path | None = None) -> list[float]:
    """How long the diagnosis of ten minutes of a large node takes, each time in a new process."""
    directory = (work or DEFAULT_WORK).absolute() / f"large-{os.getpid()}"
    try:
        write_synthetic(directory, cores=LARGE_CORES, hours=LARGE_S / 3600, seed=1)
        return [float(_output_of("answer", _ANSWERING_S, str(directory))["seconds"]) for _ in range(_ROUNDS)]
    except Failed as failure:
        raise LabError(f"ten minutes of a large node could not be diagnosed: {failure}") from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def kept_runs(kept: Path) -> list[Path]:
    """The truth files of the recordings below a directory, sorted by name."""
    return sorted(kept.rglob(TRUTH))


def _judged(plan: Plan, busy: float, directory: Path, work: Path | None = None) -> tuple[Outcome, dict[str, Any]]:
    """The outcome of a recording, and the truth about it. If a work directory is given, the scenario is played
    first."""
    scenario = scenario_named(plan.scenario)
    also = scenario_named(plan.also).cause if plan.also else ""
    outcome = Outcome(
        plan, scenario.cause, on_core=scenario.on_core, others_busy=busy, also_cause=also, heavy=scenario.heavy
    )
    truth: dict[str, Any] = {}
    try:
        if work is not None:
            longest = plan.calm_s + plan.seconds + plan.after_s + _PREPARING_S
            truth = _output_of("play", longest, json.dumps(asdict(plan)), str(directory), str(work))
        answer = _output_of("answer", _ANSWERING_S, str(directory))
    except Failed as failure:
        if work is not None:
            # The own directory is locked, and stays.
            clean(work)
        return replace(outcome, failed=str(failure)), truth
    findings = tuple(map(ReportedFinding.of, answer["findings"]))
    measured = {key: answer[key] for key in ("seconds", "verdict", "lost_s", "explained_s")}
    return replace(outcome, findings=findings, **measured, **_known(truth)), truth


def _known(truth: Mapping[str, Any]) -> dict[str, Any]:
    """The owners of the run's trouble, as far as they are known."""
    kept = {name: truth.get(name) for name in ("names", "owners", "also_owners")}
    return {name: tuple(each) for name, each in kept.items() if each is not None}


def _output_of(step: str, longest_s: float, *args: str) -> dict[str, Any]:
    """The JSON output of a step. Raises Failed with its last message if it fails or takes too long."""
    process = subprocess.Popen(
        isolated_python(f"exhume.lab.score.{step}", *args),
        env=isolated_environment(),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=longest_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"{step}: not done in {longest_s:.0f} s") from None
    finally:
        if process.poll() is None:
            # First ask it to terminate, so that it cleans up; then kill it.
            process.terminate()
            try:
                process.communicate(timeout=_STOPPING_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    lines = stderr.strip().splitlines()
    if process.returncode != 0:
        raise Failed(f"{step}: {lines[-1] if lines else f'ended with code {process.returncode}'}")
    try:
        content: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(f"{step}: printed no result") from None
    return content
