"""What the tests of the sources share."""

from pathlib import Path

import pytest
from made_up_node import MadeUpNode


@pytest.fixture
def node(tmp_path: Path) -> MadeUpNode:
    return MadeUpNode(tmp_path / "node")
