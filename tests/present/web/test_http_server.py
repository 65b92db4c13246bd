"""How the server writes its answers."""

import asyncio
import socket

import h11
import pytest
from tests.coroutines import in_thread

from exhume.cli.server import listen
from exhume.present.web.http_server import Connection

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = ("content-length", "2")


def asked(request: bytes = REQUEST) -> Connection:
    connection = Connection(h11.SERVER)
    connection.receive_data(request)
    assert isinstance(connection.next_event(), h11.Request)
    assert isinstance(connection.next_event(), h11.EndOfMessage)
    return connection


def test_the_head_of_an_answer_is_sent_with_its_body():
    connection = asked()
    assert connection.send(h11.Response(status_code=200, headers=[LENGTH])) == b""
    first = connection.send(h11.Data(data=b"{"))
    assert first is not None and first.startswith(b"HTTP/1.1 200") and first.endswith(b"\r\n\r\n{")
    assert connection.send(h11.Data(data=b"}")) == b"}"
    assert connection.send(h11.EndOfMessage()) == b""


def test_the_head_of_a_stream_is_sent_at_once():
    head = asked().send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
    assert head is not None and head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")


def test_an_answer_without_a_body_has_its_head():
    connection = asked(REQUEST.replace(b"GET", b"HEAD"))
    connection.send(h11.Response(status_code=200, headers=[LENGTH]))
    answer = connection.send(h11.EndOfMessage())
    assert answer is not None and answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n")


def test_an_answer_that_ends_early_is_none():
    connection = asked()
    connection.send(h11.Response(status_code=200, headers=[LENGTH]))
    with pytest.raises(h11.LocalProtocolError):
        connection.send(h11.EndOfMessage())


def test_nothing_waits_for_the_client_to_acknowledge_what_was_sent_before():
    async def option() -> int:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken = writer.get_extra_info("socket")
            accepted.set_result(taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0) as listener:
            server = await asyncio.start_server(connected, sock=listener)
            async with server:
                _, writer = await asyncio.open_connection(*listener.getsockname())
                writer.close()
                return await asyncio.wait_for(accepted, 10)

    assert in_thread(option) != 0
