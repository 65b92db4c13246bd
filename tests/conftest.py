"""What every test shares: root-only tests skip without root, tests that need a tool of the system say which, and which
of them run together is said in `tests/together.py`."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.parts import missing, need
from tests.together import ALONE, TOGETHER, Scheduler, Turns, in_order

TURNS = Turns()
# An example that takes long says something about the machine, which others use as well, and nothing about the program.
settings.register_profile(
    "at any pace", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("at any pace")


# What was started by `nohup`, or by a shell in its background, ignores these, and so would every program of a test.
for number, usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=(TOGETHER, ALONE),
        help="only the tests that may run together with others, or only those that have to run alone",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduler:
    return Scheduler(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Loading all files takes seconds; a test that has to run alone says so in its own."""
    of_tests = config.getoption("--part") == ALONE and collection_path.match("test_*.py")
    return True if of_tests and f"pytest.mark.{ALONE}" not in collection_path.read_text() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "vm" not in config.option.markexpr:
        # Minutes in a machine of their own: they are asked for with -m vm.
        keep_only(config, items, [item for item in items if "vm" not in item.keywords])
    part = config.getoption("--part")
    if part:
        keep_only(config, items, [item for item in items if (ALONE in item.keywords) == (part == ALONE)])
    if part == TOGETHER:
        in_order(items)


def keep_only(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Around everything else: waiting for its turn is no part of a test's time."""
    TURNS.take(item.path)
    try:
        return (yield)
    finally:
        TURNS.pass_on(None if nextitem is None else nextitem.path)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without root, or a command of `@pytest.mark.needs("perf", "gcc")`, a test is skipped by name, and fails under
    CI=true."""
    if "root" in item.keywords and os.geteuid() != 0:
        missing("root")
    for marker in item.iter_markers("needs"):
        for command in marker.args:
            need(command)
