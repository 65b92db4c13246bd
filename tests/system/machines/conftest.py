"""The machines of the tests: one kept tree, and machines over it that are booted where a test asks."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.system.machines.exhume_outside import Program
from tests.system.machines.machine_leftovers import remove_leftovers
from tests.system.machines.machine_tree import machine_tree
from tests.system.machines.nspawn_machine import Machine


@pytest.fixture(scope="session")
def tree() -> Path:
    remove_leftovers()
    return machine_tree()


@pytest.fixture
def new_machine(tree: Path) -> Iterator[Callable[[], Machine]]:
    """Machines of one test's own, off at first."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Machine(tree))


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with Program(tmp_path_factory.mktemp("program")) as running:
        yield running
