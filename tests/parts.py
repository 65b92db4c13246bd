"""Skips for tests whose requirements the host doesn't meet."""

import os
import shutil
from typing import NoReturn

import pytest

# Debian keeps mkfs and others outside the PATH of ordinary users.
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


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
