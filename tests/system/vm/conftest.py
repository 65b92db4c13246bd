"""One boot of each kernel for all tests: booting takes longer than most of them."""

from collections.abc import Iterator

import pytest
from tests.system.vm.vm_kernel import KERNELS
from tests.system.vm.vm_machine import Machine


@pytest.fixture(scope="session", params=KERNELS)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with Machine(KERNELS[request.param]) as booted:
        yield booted
