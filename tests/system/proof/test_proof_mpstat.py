"""Shares of each core beside mpstat's, over the same seconds of the same machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.on_time import on_time
from tests.system.proof.side_by_side import SOURCES, await_recorded, await_wall, late_by, next_second, recorder

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.store.read.recording import Recording

SECONDS = 20
# Where the machine held either of them up, there is nothing to compare.
ATTEMPTS, LATE_S = 5, 0.05
POINTS = 3.0
AGREEING = 0.95
STATES = {
    "usr": "user",
    "nice": "nice",
    "sys": "system",
    "irq": "irq",
    "soft": "softirq",
    "iowait": "iowait",
    "steal": "steal",
    "guest": "guest",
    "idle": "idle",
}


def mpstat(begin: int) -> list[dict[str, Any]]:
    """mpstat's seconds from `begin` (a full second, wall nanoseconds) on.

    exhume reads the counters at the full second, mpstat at the moment it was started and every second after. So it is
    started at a full second: both then describe the same seconds, to the few milliseconds that it takes to start. It
    sets its timer again each time it wakes, so under load every late wake-up would push it further; and a recorder that
    gets its core late would read another second than mpstat did. With a real-time priority both wake when they asked
    to. What either of them reads is not touched by this.
    """
    await_wall(begin)
    done = subprocess.run(
        ["mpstat", "-P", "ALL", "1", str(SECONDS), "-o", "JSON"],
        capture_output=True,
        check=True,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC", "S_TIME_FORMAT": "ISO"},
    )
    reported: list[dict[str, Any]] = json.loads(done.stdout)["sysstat"]["hosts"][0]["statistics"]
    return reported


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.needs("mpstat", "chrt")
def test_shares_of_every_core_and_second_agree_with_mpstat(tmp_path: Path) -> None:
    for attempt in range(ATTEMPTS):
        directory = tmp_path / f"recording-{attempt}"
        begin, ended, theirs = side_by_side(directory)
        window = Window(begin - 500 * MILLIS, begin + SECONDS * NANOS)
        # Its last second ended when it did: it kept the pace of the wall clock throughout.
        late = max(abs(ended - window.until) / NANOS, late_by(directory, Window(window.since, window.until + MILLIS)))
        if late < LATE_S:
            break
    assert late < LATE_S, "one of them did not stay at full seconds, so there is nothing to compare"
    compare(directory, window, theirs)


def side_by_side(directory: Path) -> tuple[int, int, list[dict[str, Any]]]:
    """When mpstat was started and ended, and what it reported."""
    with on_time(), recorder(directory):
        begin = next_second(1.0)
        # The load has the priority of everybody else; as a group more, so that it gets its shares also beside others.
        words = ["chrt", "--other", "0", sys.executable, str(SOURCES / "slow_load.py"), str(SECONDS + 2)]
        load = subprocess.Popen(words, start_new_session=True)
        group = Path(f"/proc/{load.pid}/autogroup")
        if group.exists():
            group.write_text("-20")
        try:
            theirs = mpstat(begin)
            ended = time.time_ns()
        finally:
            os.killpg(load.pid, signal.SIGKILL)
            load.wait()
        await_recorded(directory, begin + SECONDS * NANOS)
    return begin, ended, theirs


def compare(directory: Path, window: Window, theirs: list[dict[str, Any]]) -> None:
    begin = window.until - SECONDS * NANOS
    ours = {
        (round((row["wall"] - begin) / NANOS), row["cpu"]): row
        for row in Recording.open(directory).read("cpu", window).to_pylist()
    }
    differences, stolen = {}, {}
    for second, reported in enumerate(theirs):
        for core in reported["cpu-load"]:
            if core["cpu"] != "all":
                place = second, int(core["cpu"])
                row = ours.get(place)
                stolen[place] = _share(core, "steal")
                differences[place] = (
                    100.0
                    if row is None
                    else max(abs(row[name] / 10 - _share(core, state)) for state, name in STATES.items())
                )
    assert len(differences) == SECONDS * os.cpu_count()
    beyond = {
        place: round(points, 1) for place, points in differences.items() if points > POINTS + held_up(place, stolen)
    }
    largest = max(differences.values())
    print(
        f"{len(differences)} core-seconds, largest difference {largest:.1f} points, beyond {POINTS}: {beyond}; "
        f"stolen at most {max(stolen.values()):.1f}%"
    )
    assert len(beyond) <= (1 - AGREEING) * len(differences), beyond
    # The load was a varied one: agreeing on steady cores would prove nothing.
    for state in ("user", "system", "nice"):
        shares = [row[state] for row in ours.values()]
        assert max(shares) - min(shares) > 300, f"{state} hardly changed"


def held_up(place: tuple[int, int], stolen: dict[tuple[int, int], float]) -> float:
    """By how many points the two may differ because the hypervisor took the core between their reads: both belong to
    the end of a second, so to time that was stolen in it or in one next to it."""
    second, cpu = place
    return max(stolen.get((each, cpu), 0.0) for each in (second - 1, second, second + 1))


def _share(core: dict[str, Any], state: str) -> float:
    """mpstat tells guests of a low priority apart; exhume counts all of them as guests."""
    return float(core[state]) + (float(core["gnice"]) if state == "guest" else 0.0)
