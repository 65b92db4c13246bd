"""One cluster for all tests: it takes longer to come up than most of them take."""

from collections.abc import Iterator

import pytest
from tests.system.deploy.own_image import exhume_image
from tests.system.kubernetes.own_cluster import Node, own_node


@pytest.fixture(scope="session")
def cluster() -> Iterator[Node]:
    with own_node(exhume_image()) as node:
        yield node
