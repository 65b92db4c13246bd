"""Skips for tests whose requirements the host doesn't meet."""

import os
import resource
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

# Debian keeps mkfs and others outside the PATH of ordinary users, and Go where each version has a folder of its own.
_GO = sorted(str(place) for place in Path("/usr/lib").glob("go-1.*/bin"))
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin", *_GO))


def missing(part: str) -> NoReturn:
    """Skip and name what is missing; under CI=true fail, so that no test is skipped unnoticed."""
    reason = f"needs {part} on this machine"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need(command: str) -> str:
    """Path of a command; skip if there is none."""
    path = shutil.which(command, path=SEARCH_PATH)
    if path is None:
        missing(command)
    return path


def need_browser() -> str:
    """Path of Chromium: without its windows, which takes a third of the CPU time, where there is that; skip if none."""
    return shutil.which("chromium-headless-shell", path=SEARCH_PATH) or need("chromium")


def quick() -> bool:
    """Whether this is a run of `make check`, which leaves the thorough variants to `make test`."""
    return settings.get_current_profile_name() == "check"


def examples(most: int) -> settings:
    """At most so many examples, and no more than the profile has; `make fuzz` tries as many as its profile has."""
    name = settings.get_current_profile_name()
    profile = settings.get_profile(name).max_examples
    return settings(max_examples=profile if name == "fuzz" else min(most, profile))


def sampled(values: Iterable[object], every: int = 4) -> list[object]:
    """Parameters of a test that shows the same with each of them: `make check` takes one of four, `make test` all."""
    return [
        pytest.param(value, marks=pytest.mark.slow) if number % every else value for number, value in enumerate(values)
    ]


def address_space() -> int:
    """Bytes that this process has mapped: a limit of what it may still take begins there. A worker has mapped gigabytes
    of what the tests before loaded."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
