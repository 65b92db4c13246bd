"""What the Ray engine says without a Ray; a real one is in tests/system/ray."""

import socket

import pytest

from exhume.fleet.engines import EngineError
from exhume.fleet.engines.ray import _check_reachable


def test_an_address_where_nothing_listens_is_an_error_at_once():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(EngineError, match="no Ray answers"):
            _check_reachable(address)
        closed.listen()
        _check_reachable(address)
    with pytest.raises(EngineError):
        _check_reachable("127.0.0.1:99999")
    for other in ("auto", "local", "ray://127.0.0.1:1"):
        _check_reachable(other)
