"""What every test shares: root-only tests skip without root, and tests that need a tool of the system say which."""

import os

import pytest
from tests.parts import need


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "vm" not in config.option.markexpr:
        # Minutes in a machine of their own: they are asked for with -m vm.
        config.hook.pytest_deselected(items=[item for item in items if "vm" in item.keywords])
        items[:] = [item for item in items if "vm" not in item.keywords]
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
