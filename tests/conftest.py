"""Hooks of all tests: skips for missing requirements, how pytest-xdist distributes them, hypothesis profiles."""

import fcntl
import functools
import gc
import os
import re
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.parts import missing, need
from xdist.scheduler import LoadScopeScheduling

# What `tools/run-tests --unit` selects, the marks of a whole file or folder, and those that it leaves out.
UNIT = "not (root or needs or slow or paced or alone or long or vm)"
MARKED = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)$|^    item\.add_marker\(.*\)$", re.MULTILINE)
NOT_UNIT = re.compile(r"pytest\.mark\.(root|needs|slow|paced|alone|long|vm|kubernetes)\b")
GROUP = re.compile(r'pytest\.mark\.xdist_group\("(\w+)"\)')
# Files of one group count the memory cgroups of the whole host, which is theirs meanwhile; those of others make some.
LOCKS = {"cgroups": fcntl.LOCK_EX, "containers": fcntl.LOCK_SH, "services": fcntl.LOCK_SH}

LOCK_KEY = pytest.StashKey[int]()

# How long an example takes depends on the load of the host, so no profile has a deadline.
settings.register_profile("full", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("check", parent=settings.get_profile("full"), max_examples=10)
settings.register_profile("fuzz", parent=settings.get_profile("full"), max_examples=5000)
settings.load_profile("full")

# What is imported from here on stays: to look for garbage in it takes seconds, and is of no use.
gc.disable()

# A test run started by `nohup` or in the background of a shell ignores these, and so would every program it starts.
for number, default in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)


class GroupScheduling(LoadScopeScheduling):
    """Gives a worker whole files, and all files of an `xdist_group` one after the other.

    pytest-xdist 3.8 has this as --dist loadgroup, but passes the group on in Node._nodeid, which pytest 9.2 doesn't
    read: it ignores the groups without a warning. This class can go once both agree.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = self.config.rootpath / nodeid.partition("::")[0]
        return group_of(file) or str(file)


@functools.cache
def group_of(file: Path) -> str | None:
    """The `xdist_group` that a test file names, or the conftest.py next to it."""
    sources = [source.read_text() for source in (file, file.with_name("conftest.py")) if source.exists()]
    return next((found[1] for text in sources if (found := GROUP.search(text))), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.option.dist == "loadscope" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing every file takes seconds: `-m alone` and `-m paced` skip those that don't have the mark in their text,
    and `make check` those that are marked as a whole, or by the conftest.py of their folder, as none of its own."""
    expression = config.option.markexpr
    if collection_path.match("test_*.py"):
        text = collection_path.read_text()
        if expression.startswith(("alone", "paced")):
            return True if f"pytest.mark.{expression[:5]}" not in text else None
    elif (conftest := collection_path / "conftest.py").exists():
        text = conftest.read_text()
    else:
        return None
    if expression == UNIT and any(NOT_UNIT.search(marked[0]) for marked in MARKED.finditer(text)):
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Minutes each: only on request, by -m vm, -m long or -m kubernetes.
    unasked = {"vm", "long", "kubernetes"} - set(re.findall(r"\w+", config.option.markexpr))
    # By marks: keywords have the names of folders too, and one is called kubernetes.
    left_out = [item for item in items if unasked & {mark.name for mark in item.iter_markers()}]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        sort_longest_first(items)
    elif config.option.markexpr.startswith("alone"):
        # A browser is read from the disk again once another test has dropped the caches.
        items.sort(key=lambda item: "browser" not in item.path.parts)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Lock the memory cgroups for a whole file: what its fixtures made is there until its last test has ended. Here,
    so that waiting for it is no part of a test's time."""
    kind = LOCKS.get(group_of(item.path) or "")
    if kind is not None and LOCK_KEY not in item.config.stash:
        # A directory that is there anyway: nothing is left behind.
        item.config.stash[LOCK_KEY] = os.open(Path(__file__).parent, os.O_RDONLY)
        fcntl.flock(item.config.stash[LOCK_KEY], kind)
    result = yield
    if LOCK_KEY in item.config.stash and (nextitem is None or nextitem.path != item.path):
        os.close(item.config.stash[LOCK_KEY])
        del item.config.stash[LOCK_KEY]
    return result


def pytest_collection_finish() -> None:
    # Nor later, and in no child that a test forks, which would copy it page by page.
    gc.freeze()
    gc.enable()


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Order for the parallel part: named groups, then files with slow tests or real parts, then the rest.

    Within each, one file of every folder in turn: the files of a folder tend to wait for the same thing (a browser, the
    recorder's next tick) or to compute, and both together use the cores best.
    """
    folders: dict[Path, list[Path]] = {}
    for item in items:
        files = folders.setdefault(item.path.parent, [])
        if item.path not in files[-1:]:
            files.append(item.path)
    turn = {file: position for files in folders.values() for position, file in enumerate(files)}
    slow = {item.path for item in items if {"slow", "root", "needs"} & item.keywords.keys()}
    items.sort(key=lambda item: (group_of(item.path) is None, item.path not in slow, turn[item.path]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip without root or a command of `@pytest.mark.needs("perf", "gcc")`; fail under CI=true."""
    if "root" in item.keywords and os.geteuid() != 0:
        missing("root")
    for marker in item.iter_markers("needs"):
        for command in marker.args:
            need(command)
