"""/proc/net/tcp and tcp6: the user at the other end of a connection within this machine."""

import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path

_ESTABLISHED = b"01"
# Columns of net/ipv4/tcp_ipv4.c, get_tcp4_sock: sl, local, remote, st, queues, timer, retransmits, uid.
_UID = 7
_NET = Path("/proc/net")
Address = tuple[str, int]


def owner_of_connection(client: Address, server: Address, net: Path = _NET) -> int | None:
    """The user who owns the client's socket of a TCP connection within this machine; None when there is none."""
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
    """The kernel's notation of the two ends, in each file where the client's socket may be listed."""
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
