"""What every test shares: root-only tests skip without root, and tests that need a tool of the system say which."""

import os
import shutil

import pytest

# Debian keeps mkfs and friends outside an ordinary user's path.
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root")
    for item in items:
        if "root" in item.keywords:
            item.add_marker(skip)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.needs("perf", "gcc")`: a missing command skips the test by name, and fails it under CI=true."""
    wanted = [command for marker in item.iter_markers("needs") for command in marker.args]
    missing = [command for command in wanted if shutil.which(command, path=SEARCH_PATH) is None]
    if not missing:
        return
    reason = f"needs {', '.join(missing)} on this machine"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
