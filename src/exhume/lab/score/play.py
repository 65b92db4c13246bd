"""Play one run in a process of its own: start a recorder, stay calm, play the scenario, and wait a little more.

    python -m exhume.lab.score.play PLAN DIRECTORY WORK

    python -m exhume.lab.score.play PLAN WORK

The plan is JSON; the recording goes to DIRECTORY. Without DIRECTORY, it plays the second scenario of a pair, step by
step with the process that started it. Prints as JSON when the trouble began and ended; if it can't be played, prints
one sentence to stderr and exits with code 2.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from exhume.lab.leftovers import OwnCgroup
from exhume.lab.scenarios import scenario_named
from exhume.lab.scenarios.cpu import BACKGROUNDS
from exhume.lab.score.plan import Noise, Plan
from exhume.lab.stage import Stage, refuse_unfit, stage, wait_until
from exhume.model.errors import ExhumeError, LabError, RecordingError
from exhume.model.isolation import isolated_environment, isolated_python
from exhume.model.process import end_with
from exhume.store.read.recording import Recording

# The background must outlive the recording, however long the preparation takes.
_MORE_S = 300.0
_CLEARING_S = 60.0


def play(plan: Plan, directory: Path, work: Path) -> dict[str, Any]:
    """Return the wall times (ns) between which the scenario played, the names drawn for all of it, and what may be
    blamed for its trouble and for that of the second scenario."""
    scenario = scenario_named(plan.scenario)
    refuse_unfit(scenario)
    around = stage("background", seconds=plan.seconds, seed=plan.seed + 1, work=work)
    own = stage(plan.scenario, seconds=plan.seconds, core=plan.core, seed=plan.seed, work=work)
    with around as background, own as playing, _second(plan, work) as second:
        if scenario.prepare is not None and scenario.prepared_early:
            scenario.prepare(playing)
        second.step()
        seconds = plan.calm_s + plan.seconds + _MORE_S
        BACKGROUNDS[plan.background].start(background, seconds)
        start_noise(background, plan.noise, seconds)
        with recorder(directory):
            recording_since = time.monotonic()
            second.begin()
            if scenario.prepare is not None and not scenario.prepared_early:
                scenario.prepare(playing)
            second.step()
            playing.wait(max(0.0, plan.calm_s - (time.monotonic() - recording_since)))
            second.begin()
            began = time.time_ns()
            scenario.play(playing)
            ended = time.time_ns()
            # Undo what the scenario left after the recording: undoing isn't part of the run.
            playing.stop()
            also_owners = json.loads(second.step() or "[]")
            playing.wait(plan.after_s)
        names, owners = background.programs + playing.programs, playing.owners
        cgroups = [each.path for each in playing.leftovers.changes if isinstance(each, OwnCgroup)]
    blamed = {"owners": owners, "also_owners": also_owners}
    return {"began": began, "ended": ended, "names": names, "cgroups": cgroups, **blamed}


# Runnable threads per core; at half noise there is one, which leaves half of its core to other work.
_OVERSUBSCRIBED = 3
_HALF = "0.50"


def start_noise(stage: Stage, noise: Noise, seconds: float) -> None:
    """Start work that keeps the machine as busy as a level of noise says: it computes or compresses, on any core."""
    if noise is Noise.IDLE:
        return
    for number in range(len(stage.cores) * (1 if noise is Noise.HALF else _OVERSUBSCRIBED)):
        name = f"job{number}-{stage.rng.getrandbits(12):03x}"
        if noise is Noise.HALF:
            stage.start("cpu.compress", seconds, _HALF, name=name)
        elif stage.rng.random() < 0.5:
            stage.start("cpu.compute", seconds, name=name)
        else:
            stage.start("cpu.compress", seconds, "1.00", name=name)


class _Second:
    """The second scenario of a pair, in a process of its own that proceeds step by step; does nothing if there is
    none."""

    def __init__(self, process: subprocess.Popen[str] | None) -> None:
        self._process = process

    def begin(self) -> None:
        """Start its next step without waiting for it."""
        if self._process is not None:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write("go\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise LabError(f"the second scenario failed: {_last_line(self._process)}") from None

    def step(self) -> str:
        """Wait for the end of the current step; return the line that it ends with."""
        if self._process is None:
            return ""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LabError(f"the second scenario failed: {_last_line(self._process)}")
        return line


@contextlib.contextmanager
def _second(plan: Plan, work: Path) -> Iterator[_Second]:
    if not plan.also:
        yield _Second(None)
        return
    own = replace(plan, scenario=plan.also, core=plan.also_core or 0, seed=plan.seed + 2, also="", also_core=plan.core)
    process = subprocess.Popen(
        isolated_python("exhume.lab.score.play", json.dumps(asdict(own)), work),
        env=isolated_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield _Second(process)
    finally:
        # Closing its input ends it: it clears its stage.
        process.communicate(timeout=_CLEARING_S)


def play_second(plan: Plan, work: Path) -> None:
    """Play a scenario in parallel with another one: prepare, prepare while it is recorded, play. Each step ends with a
    line on standard output (the last one with what may be blamed), and the next begins with a line on standard input;
    at its end the stage is cleared. It doesn't use the core of the other scenario, the plan's `also_core`: behind a
    thread that keeps the core for itself, its programs would stand still."""
    scenario = scenario_named(plan.scenario)
    refuse_unfit(scenario)
    apart = os.sched_getaffinity(0) - {plan.also_core}
    if plan.core in apart:
        os.sched_setaffinity(0, apart)
    with stage(plan.scenario, seconds=plan.seconds, core=plan.core, seed=plan.seed, work=work) as playing:
        for early in (True, False):
            if scenario.prepare is not None and scenario.prepared_early is early:
                scenario.prepare(playing)
            _say("prepared")
            if not sys.stdin.readline():
                return
        scenario.play(playing)
        playing.stop()
        _say(json.dumps(playing.owners))
        sys.stdin.read()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def recorder(directory: Path) -> Iterator[None]:
    """Run `exhume record` with its default settings."""
    environment = {name: value for name, value in isolated_environment().items() if not name.startswith("EXHUME_")}
    process = subprocess.Popen(
        isolated_python("exhume.cli.main", "record", "--dir", directory),
        env=environment,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: end_with(os.getppid()),  # noqa: PLW1509 (no threads here)
    )

    def records() -> bool:
        if process.poll() is not None:
            raise LabError(f"the recorder did not start: {_complaint(process)}")
        with contextlib.suppress(RecordingError):
            return Recording.open(directory).span() is not None
        return False

    try:
        wait_until("the recorder records", records)
        yield
        if process.poll() is not None:
            raise LabError(f"the recorder ended while it recorded: {_complaint(process)}")
        process.send_signal(signal.SIGINT)
        wait_until("the recorder stops", lambda: process.poll() is not None)
        if process.returncode != 0:
            raise LabError(f"the recorder failed: {_complaint(process)}")
    finally:
        process.kill()
        process.wait()


def _complaint(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    stderr = process.stderr.read().decode(errors="replace").strip()
    return stderr.splitlines()[-1] if stderr else f"code {process.returncode}"


def _last_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    stderr = process.stderr.read().strip()
    return stderr.splitlines()[-1] if stderr else f"code {process.poll()}"


def _interrupt(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    # The judge may be gone, or may end this process at its deadline: clean up in any case.
    end_with(os.getppid(), signal.SIGTERM)
    signal.signal(signal.SIGTERM, _interrupt)
    played: dict[str, Any] | None = None
    try:
        if len(sys.argv) == 3:
            play_second(Plan.of(json.loads(sys.argv[1])), Path(sys.argv[2]))
        else:
            played = play(Plan.of(json.loads(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]))
    except (ExhumeError, OSError) as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit("it was stopped before its end")
    if played is not None:
        sys.stdout.write(json.dumps(played) + "\n")
