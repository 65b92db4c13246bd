"""Whose connection it is, and who may use the page without a token."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from exhume.cli.server import starter

NOBODY = 65534
COMMAND = [sys.executable, "-m", "exhume.cli.main", "serve", "--listen", "127.0.0.1:0", "--no-open"]


@pytest.mark.parametrize(
    ("environment", "user", "expected"),
    [
        ({}, 1000, 1000),
        ({}, 0, 0),
        ({"SUDO_UID": "1000"}, 0, 1000),
        ({"SUDO_UID": "7"}, 1000, 1000),
        ({"SUDO_UID": "x"}, 0, 0),
    ],
)
def test_who_started_it(environment, user, expected):
    assert starter(environment, user) == expected


def status_as(user: int, port: int, path: str = "/api/recording") -> tuple[int, bytes]:
    """What a process of a user is answered."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                while part := client.recv(65536):
                    os.write(writing, part)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    head, _, body = answer.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1.1 (\d+)", head)
    assert found is not None
    return int(found[1]), body


@pytest.mark.root
@pytest.mark.parametrize(
    ("sudo", "token", "expected"),
    [
        ("", "", {0: 200, 1000: 403, NOBODY: 403}),
        ("1000", "", {0: 200, 1000: 200, NOBODY: 403}),
        ("", "correct-horse-battery", {0: 401, 1000: 401, NOBODY: 401}),
    ],
)
def test_only_root_and_the_starting_user_may_connect(written, sudo, token, expected):
    # The recording is root's alone: the server reads it all the same, without root's other rights.
    assert Path(written[0]).stat().st_mode & 0o077 == 0
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SUDO_", "EXHUME_"))}
    if sudo:
        environment |= {"SUDO_UID": sudo, "SUDO_GID": sudo}
    if token:
        environment["EXHUME_TOKEN"] = token
    server = subprocess.Popen(
        [*COMMAND, "--dir", str(written[0])],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        link = re.search(r":(\d+)/", server.stdout.readline())
        assert link is not None
        answers = {user: status_as(user, int(link[1])) for user in expected}
        assert {user: status for user, (status, _) in answers.items()} == expected
        for status, body in answers.values():
            if status == 403:
                assert "--token" in json.loads(body)["detail"]
        assert os.stat(f"/proc/{server.pid}").st_uid != 0  # noqa: PTH116
    finally:
        server.terminate()
        server.wait(60)
