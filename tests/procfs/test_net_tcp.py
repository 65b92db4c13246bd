"""Whose connection it is, by the kernel's list of sockets."""

import os
import socket

import pytest

from exhume.procfs.net_tcp import owner_of_connection


@pytest.mark.parametrize(
    ("family", "listen", "connect"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "::ffff:127.0.0.1"),
    ],
)
def test_the_owner_of_a_real_connection(family, listen, connect):
    with socket.socket(family) as listener:
        listener.bind((listen, 0))
        listener.listen()
        with socket.socket(family) as client:
            client.connect((connect, listener.getsockname()[1]))
            accepted, peer = listener.accept()
            with accepted:
                assert owner_of_connection(peer[:2], accepted.getsockname()[:2]) == os.getuid()
                assert owner_of_connection((peer[0], 1), accepted.getsockname()[:2]) is None


def test_a_made_up_list(tmp_path):
    line = "   3: 0100007F:9C40 0100007F:20E4 {} 00000000:00000000 00:00000000 00000000  1000 0 5 1 0 20 4 30 10 -1\n"
    for state, expected in (("01", 1000), ("06", None)):
        (tmp_path / "tcp").write_text("  sl  local_address rem_address   st\n" + line.format(state))
        assert owner_of_connection(("127.0.0.1", 40000), ("127.0.0.1", 8420), tmp_path) == expected
