"""One run, in a process of its own: a recorder, calm, the scenario, and a little more.

    python -m exhume.lab.score.play PLAN DIRECTORY WORK

The plan is JSON; the recording goes to DIRECTORY. Prints as JSON when the trouble began and ended; what keeps it from
being played is one sentence on stderr and exit code 2.
"""

import contextlib
import ctypes
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exhume.lab.leftovers import OwnCgroup
from exhume.lab.scenarios import scenario_named
from exhume.lab.scenarios.cpu import BACKGROUNDS
from exhume.lab.score.plan import Plan
from exhume.lab.stage import refuse_unfit, stage, wait_until
from exhume.model.errors import ExhumeError, LabError, RecordingError
from exhume.model.isolation import isolated_environment, isolated_python
from exhume.store.read.recording import Recording

_PR_SET_PDEATHSIG = 1
# The background outlives the recording, whatever the preparing takes.
_MORE_S = 300.0


def play(plan: Plan, directory: Path, work: Path) -> dict[str, Any]:
    """Returns the wall times (ns) between which the scenario played, and the names that were drawn for it."""
    scenario = scenario_named(plan.scenario)
    refuse_unfit(scenario)
    around = stage("background", seconds=plan.seconds, seed=plan.seed + 1, work=work)
    own = stage(plan.scenario, seconds=plan.seconds, core=plan.core, seed=plan.seed, work=work)
    with around as background, own as playing:
        if scenario.prepare is not None and scenario.prepared_early:
            scenario.prepare(playing)
        BACKGROUNDS[plan.background].start(background, plan.calm_s + plan.seconds + _MORE_S)
        with recorder(directory):
            recording_since = time.monotonic()
            if scenario.prepare is not None and not scenario.prepared_early:
                scenario.prepare(playing)
            playing.wait(max(0.0, plan.calm_s - (time.monotonic() - recording_since)))
            began = time.time_ns()
            scenario.play(playing)
            ended = time.time_ns()
            # What the scenario left is undone when the recording is over: undoing isn't part of the story.
            playing.stop()
            playing.wait(plan.after_s)
        names = [link.name for each in (background, playing) for link in (each.directory / "bin").glob("*")]
        cgroups = [each.path for each in playing.leftovers.changes if isinstance(each, OwnCgroup)]
    return {"began": began, "ended": ended, "names": names, "cgroups": cgroups}


@contextlib.contextmanager
def recorder(directory: Path) -> Iterator[None]:
    """`exhume record` with its default settings."""
    environment = {name: value for name, value in isolated_environment().items() if not name.startswith("EXHUME_")}
    process = subprocess.Popen(
        isolated_python("exhume.cli.main", "record", "--dir", directory),
        env=environment,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 (no threads here)
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
    said = process.stderr.read().decode(errors="replace").strip()
    return said.splitlines()[-1] if said else f"code {process.returncode}"


def _interrupt(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    # The judge may be gone, or may end this process at its deadline: what was made is removed all the same.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        played = play(Plan(**json.loads(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]))
    except (ExhumeError, OSError) as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit("it was stopped before its end")
    sys.stdout.write(json.dumps(played) + "\n")
