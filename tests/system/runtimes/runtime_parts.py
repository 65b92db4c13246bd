"""What the real engines of these tests run, and how long they may take for it."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.system.zombies.own_docker import OwnDocker, until

from exhume.model.audit import History
from exhume.model.errors import LabError

# On a machine that is busy otherwise an engine takes many times as long as it does alone.
PATIENCE_S = 60

IMAGE = "plain.test/tools:3"
# Says something on both of its outputs, then fails.
COMPLAINT = "echo no credentials; echo giving up >&2; exit 7"
# Ends by itself once it is asked to, and says when it is ready for that: one that is asked before it listens hears
# nothing.
READY = "ready"
_NANOS = 10**9


@dataclass(frozen=True)
class Containers:
    """The ids of the containers by what they do."""

    crashing: str
    steady: str
    finished: str


def ends_when_asked(code: int) -> str:
    return f"trap 'exit {code}' TERM; echo {READY}; while :; do busybox sleep 0.1; done"


def remove(docker: OwnDocker, *containers: str) -> None:
    """Whatever they do: one that is met in the moment of its restart can't be removed in that moment."""

    def gone() -> bool:
        left = set(docker("ps", "-aq", "--no-trunc").split()) & set(containers)
        if left:
            with suppress(LabError):
                docker("rm", "-f", *left)
        return not left

    until("they are removed", gone, PATIENCE_S)


def assert_rate(history: History, restarts: int, first: int) -> None:
    """So many restarts since `first` (wall nanoseconds), of which less than a minute counts as a minute."""
    age_s = (time.time_ns() - first) / _NANOS
    assert history.restarts_per_hour is not None
    assert restarts * 3600 / max(60.0, age_s) * 0.99 <= history.restarts_per_hour <= restarts * 60 * 1.01


def at_work(directory: Path) -> list[Path]:
    """The processes that were started with this directory in their args."""
    found = []
    for args in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(directory) in args.read_bytes():
                found.append(args.parent)
    return found


def remove_cgroup(name: str) -> None:
    """In all hierarchies, once nothing runs in it any more."""

    def gone() -> bool:
        places = list(Path("/sys/fs/cgroup").glob(f"*/{name}"))
        places += [place for place in (Path("/sys/fs/cgroup") / name,) if place.exists()]
        for place in places:
            for directory in sorted((place, *place.rglob("*/")), reverse=True):
                with suppress(OSError):
                    directory.rmdir()
        return not any(place.exists() for place in places)

    until(f"cgroup {name} is empty", gone, PATIENCE_S)
