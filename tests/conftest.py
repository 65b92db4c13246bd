"""What every test shares: root-only tests skip without root, and tests that need a tool of the system say which."""

import os

import pytest
from tests.parts import need


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root")
    for item in items:
        if "root" in item.keywords:
            item.add_marker(skip)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.needs("perf", "gcc")`: a missing command skips the test by name, and fails it under CI=true."""
    for marker in item.iter_markers("needs"):
        for command in marker.args:
            need(command)
