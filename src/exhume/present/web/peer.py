"""Which user is at the other end of a connection on this machine, and who of them may use the page.

A recording shows what other users may not see: command lines, and the kernel log where kernel.dmesg_restrict is set. On
loopback the kernel knows the user of each end; nothing has to be typed or kept.
"""

import asyncio
import ipaddress
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

ROOT = 0
_ESTABLISHED = b"01"
# Columns of net/ipv4/tcp_ipv4.c, get_tcp4_sock: sl, local, remote, st, queues, timer, retransmits, uid.
_UID = 7
_NET = Path("/proc/net")
_HEADERS = {"content-security-policy": "default-src 'none'", "x-content-type-options": "nosniff"}

Address = tuple[str, int]


def starter(environment: Mapping[str, str] | None = None, user: int | None = None) -> int:
    """The user who started this program: behind sudo, the one who called it. Ask before root is given up."""
    source = os.environ if environment is None else environment
    own = os.getuid() if user is None else user
    caller = source.get("SUDO_UID", "")
    return int(caller) if own == ROOT and caller.isascii() and caller.isdigit() else own


def owner_of_connection(client: Address, server: Address, net: Path = _NET) -> int | None:
    """The user whose socket is the client's end of a TCP connection within this machine; None where there is none."""
    for file, local, remote in _written(client, server):
        try:
            content = (net / file).read_bytes()
        except OSError:
            continue
        at = content.find(b" %b %b %b " % (local, remote, _ESTABLISHED))
        if at >= 0:
            line = content[content.rfind(b"\n", 0, at) + 1 : content.find(b"\n", at)]
            return int(line.split()[_UID])
    return None


def _written(client: Address, server: Address) -> Iterator[tuple[str, bytes, bytes]]:
    """How the kernel writes the two ends, in each file where the client's socket may be listed."""
    here, there = _plain(client[0]), _plain(server[0])
    if here.version == there.version == 4:
        yield "tcp", _hex(here, client[1]), _hex(there, server[1])
        here, there = (ipaddress.IPv6Address(f"::ffff:{each}") for each in (here, there))
    yield "tcp6", _hex(here, client[1]), _hex(there, server[1])


def _plain(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host.partition("%")[0])
    return (address.ipv4_mapped or address) if address.version == 6 else address


def _hex(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> bytes:
    packed = address.packed
    quads = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return b"%b:%04X" % (b"".join(b"%08X" % quad for quad in quads), port)


class PeerCheck:
    """Lets through the requests of processes of these users alone."""

    def __init__(self, app: ASGIApp, users: Collection[int], net: Path = _NET) -> None:
        self._app = app
        self._users = frozenset(users)
        self._net = net

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not await self._may(scope):
            sentence = (
                "this page is for root and the user who started it; ask them for a link: exhume serve --token makes one"
            )
            await JSONResponse({"detail": sentence}, 403, headers=_HEADERS)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _may(self, scope: Scope) -> bool:
        client, server = scope.get("client"), scope.get("server")
        if client is None or server is None:
            return False
        # The list is long on a node with many connections.
        found = await asyncio.to_thread(owner_of_connection, tuple(client[:2]), tuple(server[:2]), self._net)
        return found in self._users
