"""What the real engines of these tests run."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.zombies.own_docker import until

IMAGE = "plain.test/tools:3"
# Says something on both of its outputs, then fails.
COMPLAINT = "echo no credentials; echo giving up >&2; exit 7"


@dataclass(frozen=True)
class Containers:
    """The ids of the containers by what they do."""

    crashing: str
    steady: str
    finished: str


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

    until(f"cgroup {name} is empty", gone, 20)
