"""An API server of the tests' own with a node, and a receiver of webhooks."""

import pytest
from tests.kubernetes.pretend_api import served
from tests.notify.conftest import receiver

__all__ = ["receiver"]


@pytest.fixture
def api(tmp_path, monkeypatch):
    with served("node-7", tmp_path, monkeypatch) as state:
        yield state
