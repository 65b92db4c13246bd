"""One virtual machine for all of its tests: booting takes longer than most of them."""

from collections.abc import Iterator

import pytest
from tests.system.vm.vm_machine import Machine


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    with Machine() as booted:
        yield booted
