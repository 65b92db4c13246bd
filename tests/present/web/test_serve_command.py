"""`exhume serve` and bare `exhume` as they are started: their arguments, their ends, and what they leave behind."""

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.diagnose.scenes import Scene
from tests.parts import need
from tests.present.web.smuggling import framings, statuses

from exhume.model.clock import NANOS
from exhume.model.errors import RecordingError
from exhume.present.web.http_server import HEADER_TIMEOUT_S
from exhume.store.read.recording import Recording

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "exhume.cli.main"]
# For how long anything may take, on a machine that is busy with other tests.
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("served") / "r"
    Scene(cores=1, seconds=3).write(directory)
    return directory


@contextmanager
def started(*args: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()


def link_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"exhume: (https?://\S+)", line)
        if found:
            return found[1]
    raise AssertionError("no link was printed")


def body_of(link: str, path: str = "/api/recording", context: ssl.SSLContext | None = None) -> dict:
    place = urlsplit(link)
    kind = http.client.HTTPConnection if place.scheme == "http" else http.client.HTTPSConnection
    more = {"context": context} if context else {}
    connection = kind("127.0.0.1", place.port, timeout=PATIENCE_S, **more)  # type: ignore[arg-type]
    connection.request("GET", path, headers={"host": place.netloc})
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return {**body, "status": answer.status}


def ended(process: subprocess.Popen[str]) -> int:
    return process.wait(PATIENCE_S)


def test_it_serves_until_a_signal_comes(small):
    with started("serve", "--dir", str(small), "--listen", "127.0.0.1:0", "--no-open") as server:
        link = link_of(server)
        assert link.startswith("http://localhost:")
        assert body_of(link)["node"] == "node-1"
        server.send_signal(signal.SIGINT)
        assert ended(server) == 0


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)


def test_a_directory_without_a_recording_is_one_sentence(tmp_path):
    done = run("serve", "--dir", str(tmp_path / "none"), "--no-open")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "exhume record" in done.stderr


def test_a_port_that_is_taken_is_one_sentence(small):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--dir", str(small), "--listen", f"127.0.0.1:{port}", "--no-open")
    assert done.returncode == 2
    assert f"port {port} is taken" in done.stderr
    assert "--listen" in done.stderr


def test_another_address_needs_the_token_of_the_link(small):
    with started("serve", "--dir", str(small), "--listen", "0.0.0.0:0", "--no-open") as server:
        link = link_of(server)
        assert "?token=" in link
        assert body_of(link)["status"] == 401
        token = link.rpartition("=")[2]
        place = urlsplit(link)
        connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=PATIENCE_S)
        connection.request("GET", "/api/recording", headers={"authorization": f"Bearer {token}", "host": place.netloc})
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.needs("openssl")
def test_it_speaks_tls(small, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    args = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made = subprocess.run(
        [need("openssl"), *args, "-keyout", str(key), "-out", str(certificate)], capture_output=True, check=False
    )
    assert made.returncode == 0
    more = ["--tls-cert", str(certificate), "--tls-key", str(key), "--no-open"]
    with started("serve", "--dir", str(small), "--listen", "127.0.0.1:0", *more) as server:
        link = link_of(server)
        assert link.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
        assert body_of(link, context=context)["node"] == "node-1"


def server_of(recorder: int) -> int | None:
    """The process of the page next to a recorder."""
    children = Path(f"/proc/{recorder}/task/{recorder}/children").read_text().split()
    return int(children[0]) if children else None


def gone(pid: int) -> bool:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.mark.root
def test_bare_exhume_records_and_serves_and_ends_as_one(tmp_path):
    with started(EXHUME_DIR=str(tmp_path / "r"), EXHUME_LISTEN="127.0.0.1:0") as recorder:
        link = link_of(recorder)
        until = time.monotonic() + PATIENCE_S
        while (body := body_of(link))["state"] == "empty" and time.monotonic() < until:
            time.sleep(0.2)
        assert body["live"]
        assert body["cores"] >= 1
        page = server_of(recorder.pid)
        assert page is not None
        recorder.send_signal(signal.SIGINT)
        assert ended(recorder) == 0
        assert gone(page)
    assert list((tmp_path / "r").glob("*_*"))


@pytest.mark.root
def test_a_recorder_that_is_killed_leaves_no_server_behind(tmp_path):
    with started(EXHUME_DIR=str(tmp_path / "r"), EXHUME_LISTEN="127.0.0.1:0") as recorder:
        link_of(recorder)
        page = server_of(recorder.pid)
        assert page is not None
        recorder.kill()
        recorder.wait(PATIENCE_S)
        assert gone(page)


@pytest.mark.root
def test_a_page_that_can_not_be_served_does_not_stop_the_recorder(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started(EXHUME_DIR=str(tmp_path / "r"), EXHUME_LISTEN=f"127.0.0.1:{port}") as recorder:
            assert recorder.stdout is not None
            assert any("the page is not served" in line for line in recorder.stdout)
            # The recorder goes on: what it records from here on is there.
            before, until = seconds_in(tmp_path / "r"), time.monotonic() + PATIENCE_S
            while seconds_in(tmp_path / "r") <= before + 1:
                assert time.monotonic() < until, "nothing is recorded any more"
                time.sleep(0.2)
            recorder.send_signal(signal.SIGINT)
            recorder.communicate(timeout=PATIENCE_S)
    assert recorder.returncode == 0
    assert list((tmp_path / "r").glob("*_*"))


def seconds_in(directory: Path) -> float:
    """How much is recorded so far."""
    try:
        span = Recording.open(directory).span()
    except RecordingError:
        return 0
    return span.nanos / NANOS if span else 0


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [each for child in children for each in (child, *descendants(child))]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.root
@pytest.mark.parametrize("value", ["abc", "-1", "4294967295", ""])
def test_an_environment_without_a_user_is_one_sentence(small, value):
    done = subprocess.run(
        [*COMMAND, "serve", "--dir", str(small), "--listen", "127.0.0.1:0", "--no-open"],
        env={**os.environ, "SUDO_UID": value},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "SUDO_UID" in done.stderr


def test_more_connections_than_descriptors_close_without_a_log(small):
    command = shlex.join([*COMMAND, "serve", "--dir", str(small), "--listen", "127.0.0.1:0", "--no-open"])
    args = ["sh", "-c", f"ulimit -n 260 && exec {command}"]
    with (
        subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server,
        ExitStack() as idle,
    ):
        place = urlsplit(link_of(server))
        for _ in range(400):
            idle.enter_context(socket.create_connection(("127.0.0.1", place.port), PATIENCE_S))
        time.sleep(1.0)
        idle.close()
        assert body_of(place.geturl())["status"] == 200
        server.send_signal(signal.SIGINT)
        _, log = server.communicate(timeout=PATIENCE_S)
    assert log == ""


def test_no_part_of_a_request_is_taken_for_another_one(small):
    inner = b"GET /api/recording HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with started("serve", "--dir", str(small), "--listen", "127.0.0.1:0", "--no-open") as server:
        port = urlsplit(link_of(server)).port
        for framing, answers in framings(inner, 200).items():
            head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
            assert statuses(port, head + framing + inner) == answers, framing


def test_a_request_that_does_not_arrive_is_closed(small):
    with started("serve", "--dir", str(small), "--listen", "127.0.0.1:0", "--no-open") as server:
        place = urlsplit(link_of(server))
        with socket.create_connection(("127.0.0.1", place.port), 2 * HEADER_TIMEOUT_S) as slow:
            began = time.monotonic()
            slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            slow.settimeout(HEADER_TIMEOUT_S + PATIENCE_S)
            assert slow.recv(100) == b""
            assert time.monotonic() - began > HEADER_TIMEOUT_S / 2


@pytest.mark.root
def test_of_roots_rights_only_reading_is_left(small, tmp_path):
    """In a directory of mode 700: server and workers run as the user nobody, with no right but reading."""
    hidden = tmp_path / "hidden"
    shutil.copytree(small, hidden / "r")
    hidden.chmod(0o700)
    args = ("serve", "--dir", str(hidden / "r"), "--listen", "127.0.0.1:0", "--no-open")
    with started(*args, SUDO_UID="65534", SUDO_GID="65534") as server:
        link = link_of(server)
        body = body_of(link, "/api/flame")
        assert body["status"] == 200
        workers = descendants(server.pid)
        assert len(workers) >= 3
        for pid in (server.pid, *workers):
            status = status_of(pid)
            assert set(status["Uid"].split()) == {"65534" if may_keep_reading() else "0"}
            if may_keep_reading():
                assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 1 << 2
        server.kill()
        server.wait(PATIENCE_S)
        assert all(gone(pid) for pid in workers)


def may_keep_reading() -> bool:
    """Whether root has the right to read everything here; some containers' root has not."""
    return bool(int(status_of(os.getpid())["CapPrm"], 16) >> 2 & 1)


def test_the_server_itself_loads_no_library_that_reads(small):
    """numpy, pyarrow and pydantic take most of a start, and tens of megabytes; workers load what they need."""
    with started("serve", "--dir", str(small), "--listen", "127.0.0.1:0", "--no-open") as server:
        assert body_of(link_of(server), "/api/flame")["status"] == 200
        loaded = Path(f"/proc/{server.pid}/maps").read_text()
    assert not [name for name in ("numpy", "pyarrow", "pydantic") if f"/{name}" in loaded]
