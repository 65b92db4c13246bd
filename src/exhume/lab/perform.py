"""A scenario from its beginning to its end: refused where it can't be had, prepared, played, and cleared away."""

import os
from collections.abc import Callable
from pathlib import Path

from exhume.lab.room import refuse_without_memory
from exhume.lab.scenarios import SCENARIOS
from exhume.lab.stage import Scenario, Stage, stage
from exhume.model.errors import LabError, UsageError

SHORTEST_S, LONGEST_S = 1.0, 600.0
LONGEST_NAME = 15  # of which the kernel keeps no more

Progress = Callable[[str, float], None]


def scenario_named(name: str) -> Scenario:
    """Raises UsageError where there is none of that name."""
    if name not in SCENARIOS:
        raise UsageError(f"the lab has no scenario {name!r}; exhume lab list shows them")
    return SCENARIOS[name]


def refuse_unfit(scenario: Scenario) -> None:
    """Raise LabError, in a sentence, where this machine can't play it."""
    if os.geteuid() != 0:
        raise LabError(f"{scenario.name} is made for real, which needs root; run it with sudo")
    if scenario.memory:
        refuse_without_memory(scenario.memory, scenario.name)


def perform(
    scenario: Scenario,
    *,
    seconds: float | None = None,
    core: int | None = None,
    name: str | None = None,
    seed: int | None = None,
    work: Path | None = None,
    progress: Progress = lambda doing, done: None,
) -> Stage:
    """Play a scenario; what isn't given is drawn by lot. Returns the stage that it was played on, cleared."""
    length = scenario.seconds if seconds is None else seconds
    if not SHORTEST_S <= length <= LONGEST_S:
        raise UsageError(f"a scenario lasts from {SHORTEST_S:.0f} to {LONGEST_S:.0f} seconds")
    if name is not None and (not name or len(name.encode()) > LONGEST_NAME or not name.isprintable() or "/" in name):
        raise UsageError(f"{name!r} is no name for a process: up to {LONGEST_NAME} characters, no slashes")
    refuse_unfit(scenario)
    doing = [scenario.name]
    with stage(
        scenario.name,
        seconds=length,
        core=core,
        name=name,
        seed=seed,
        work=work,
        progress=lambda done: progress(doing[0], done),
    ) as playing:
        if scenario.prepare is not None:
            doing[0] = f"preparing {scenario.name}"
            scenario.prepare(playing)
            doing[0] = scenario.name
        scenario.play(playing)
    return playing
