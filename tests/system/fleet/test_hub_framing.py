"""A proxy in front of a hub and the hub agree where each request ends: no part of one is taken for another."""

from pathlib import Path

import pytest
from tests.present.web.smuggling import framings, statuses
from tests.system.fleet.hub_process import HubProcess

from exhume.fleet.tokens import Tokens

pytestmark = pytest.mark.slow


def test_no_part_of_a_request_to_the_hub_is_taken_for_another_one(tmp_path: Path) -> None:
    token = Tokens(tmp_path / "state").add("node-1")
    hub = HubProcess(str(tmp_path / "lake"), tmp_path / "state")
    hub.start()
    inner = b"GET /v1/health HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"
    # What is not a batch is answered with 400; without a token the body is not looked at.
    refused = {
        f"POST /v1/batches HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n": 400,
        "POST /v1/batches HTTP/1.1\r\nHost: hub\r\n": 401,
        "GET /v1/health HTTP/1.1\r\nHost: hub\r\n": 200,
    }
    try:
        for head, otherwise in refused.items():
            for framing, answers in framings(inner, otherwise).items():
                assert statuses(hub.port, head.encode() + framing + inner) == answers, framing
    finally:
        hub.stop()
