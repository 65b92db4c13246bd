"""How the server writes its answers."""

import asyncio
import socket

from tests.coroutines import in_thread

from exhume.cli.server import listen


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
