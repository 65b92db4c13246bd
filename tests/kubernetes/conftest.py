"""A pretend API server, with a kubeconfig for it."""

import pytest
from tests.kubernetes.pretend_api import served


@pytest.fixture
def api(tmp_path, monkeypatch):
    with served("node-1", tmp_path, monkeypatch) as state:
        yield state
