"""`exhume fleet serve` as it is started: its arguments, who may open it, and its end."""

import http.client
import os
import select
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "exhume.cli.main", "fleet", "serve", "--no-open", "--listen", "127.0.0.1:0"]
PATIENCE_S = 60.0
TOKEN = "0123456789abcdef"


def test_a_lake_that_is_not_there_is_reported_at_once(tmp_path):
    done = subprocess.run([*COMMAND, "--lake", str(tmp_path / "no")], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and str(tmp_path / "no") in done.stderr
    done = subprocess.run([*COMMAND, "--lake", "nonsense://x"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "nonsense" in done.stderr


def test_it_is_for_those_with_the_token_and_ends_with_a_signal(lake):
    command = [*COMMAND, "--lake", str(lake.directory), "--token", TOKEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as server:
        assert server.stdout is not None
        try:
            assert select.select([server.stdout], [], [], PATIENCE_S)[0]
            place = urlsplit(server.stdout.readline().removeprefix("exhume: ").strip())

            def status(path: str, **headers: str) -> int:
                connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                answer.read()
                connection.close()
                return answer.status

            bearer = f"Bearer {TOKEN}"
            node, incident = lake.with_bundle
            for path in ("/api/fleet", "/api/cells", f"/node/{node}/incident/{incident}/api/recording"):
                assert status(path) == 401
                assert status(path, Authorization=bearer) == 200
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0
