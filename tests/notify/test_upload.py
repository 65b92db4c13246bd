"""Uploads: what is tried again, how often and how long, and what is refused at once."""

import socket
import time

import pytest
from tests.notify.profile_server import profile_server

from exhume.interop.receivers import HttpRequest
from exhume.notify.outbox import Backoff
from exhume.notify.upload import MOST_ATTEMPTS, UploadFailed, upload


def sent(url: str, token: str | None = None, **options) -> int:
    quick = {"backoff": Backoff(first_s=0.01, longest_s=0.02), **options}
    return upload(HttpRequest(f"{url}/x", b"body", "application/x-test", {"X-More": "1"}), token, **quick)


def test_taken_at_once():
    with profile_server() as server:
        assert sent(server.url, "secret") == 1
    (request,) = server.received
    assert (request.path, request.body) == ("/x", b"body")
    assert request.headers["content-type"] == "application/x-test" and request.headers["x-more"] == "1"
    assert request.headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504])
def test_a_server_in_trouble_is_tried_again(code):
    reported: list[str] = []
    with profile_server((code, {}), (code, {})) as server:
        assert sent(server.url, report=reported.append) == 3
    assert len(server.received) == 3 and len(reported) == 2 and str(code) in reported[0]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 413, 301, 307])
def test_a_refusal_is_final(code):
    moved = {"Location": "http://127.0.0.1:1/elsewhere"}
    with profile_server((code, moved)) as server, pytest.raises(UploadFailed, match=str(code)):
        sent(server.url)
    assert len(server.received) == 1


def test_it_gives_up_after_some_attempts():
    with profile_server(*[(500, {})] * 20) as server, pytest.raises(UploadFailed, match="500"):
        sent(server.url)
    assert len(server.received) == MOST_ATTEMPTS


def test_it_waits_as_long_as_the_server_asks_but_not_beyond_the_deadline():
    with profile_server((429, {"Retry-After": "1"})) as server:
        began = time.monotonic()
        assert sent(server.url) == 2
        assert time.monotonic() - began >= 1
        server.answers.append((429, {"Retry-After": "60"}))
        with pytest.raises(UploadFailed):
            sent(server.url, deadline_s=5)
    assert time.monotonic() - began < 10


def test_a_server_that_hangs_is_tried_again():
    with profile_server(None) as server:
        assert sent(server.url, answer_s=0.3) == 2


def test_a_server_that_hangs_for_good():
    began = time.monotonic()
    with profile_server(*[None] * 20) as server, pytest.raises(UploadFailed):
        sent(server.url, answer_s=0.2, deadline_s=2)
    assert time.monotonic() - began < 10


def test_no_server():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(UploadFailed, match="connection"):
            sent(address)
