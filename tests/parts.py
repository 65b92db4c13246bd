"""What a test does when the machine lacks a part of it."""

import os
import shutil
from typing import NoReturn

import pytest

# Debian keeps mkfs and friends outside an ordinary user's path.
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def missing(part: str) -> NoReturn:
    """Skip, naming what is missing; under CI=true fail, so that nothing is skipped unseen."""
    reason = f"needs {part} on this machine"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need(command: str) -> str:
    """Where a command is."""
    path = shutil.which(command, path=SEARCH_PATH)
    if path is None:
        missing(command)
    return path
