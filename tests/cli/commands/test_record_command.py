"""Bare `exhume` on a terminal: the status block holds the address of its page until the end."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

PROGRAM = [sys.executable, "-m", "exhume.cli.main"]
ADDRESS = re.compile(rb"http://localhost:\d+/")
BLOCK = re.compile(rb"\x1b\[\d+A\r(.*?)\x1b\[J", re.DOTALL)
ESCAPES = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")


@pytest.mark.root
def test_every_block_has_the_address_and_fits_80_columns(tmp_path):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EXHUME_", "COLUMNS", "LINES"))}
    settings = {"EXHUME_DIR": str(tmp_path / "r"), "EXHUME_LISTEN": "127.0.0.1:0", "TERM": "xterm-256color"}
    with subprocess.Popen(
        PROGRAM,
        stdin=follower,
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env=clean | settings,
        start_new_session=True,
    ) as process:
        os.close(follower)
        written, deadline = b"", time.monotonic() + 120
        try:
            while len(with_address(written)) < 3:
                assert time.monotonic() < deadline, written[-2000:]
                if select.select([leader], [], [], 0.5)[0]:
                    written += os.read(leader, 65536)
        finally:
            process.send_signal(signal.SIGINT)
            while select.select([leader], [], [], 60)[0]:
                try:
                    os.read(leader, 65536)
                except OSError:
                    break
            assert process.wait(60) == 0
            os.close(leader)
    blocks = BLOCK.findall(written)
    first = next(index for index, block in enumerate(blocks) if ADDRESS.search(block))
    assert all(ADDRESS.search(block) for block in blocks[first:])
    for block in blocks:
        lines = ESCAPES.sub(b"", block).decode().replace("\r", "").split("\n")
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 24


def with_address(written):
    return [block for block in BLOCK.findall(written) if ADDRESS.search(block)]
