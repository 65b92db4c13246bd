"""A made-up node for each test."""

from pathlib import Path

import pytest
from tests.collect.inventory.node_tree import NodeTree


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path / "node")
