"""A pretend API server, with a kubeconfig for it."""

import threading

import pytest
from tests.kubernetes.pretend_api import PretendApi, serve


@pytest.fixture
def api(tmp_path, monkeypatch):
    state = PretendApi()
    state.add_node("node-1")
    server = serve(state)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    monkeypatch.setenv("KUBECONFIG", str(state.kubeconfig(tmp_path / "kubeconfig")))
    yield state
    server.shutdown()
    server.server_close()
    thread.join()
