"""`exhume event`: what is sent, and what is said where it can't be."""

import json
import re
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.system.faults.recorder_process import RecorderProcess, rows, until

from exhume.cli import exit_codes
from exhume.cli.recorder import events_socket
from exhume.model.job_event import JobEvent
from exhume.model.settings import AUTO, SYSTEM_DIRECTORY

ANSWERS = Path(__file__).resolve().parents[2] / "interop/ray-answers.json"


@pytest.fixture
def recorder(tmp_path):
    """The receiving end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "events.sock"))
        receiver.settimeout(5)
        yield receiver


def add(exhume, path, *args):
    return exhume("event", "add", "--events-socket", str(path), *args, check=False)


def test_an_event_with_all_of_its_parts(exhume, recorder):
    before = time.time_ns()
    args = ("--kind", "job-failed", "--at", "1m ago", "--node", "n7", "--attr", "job=a=b", "it died")
    assert add(exhume, recorder.getsockname(), *args).returncode == exit_codes.OK
    event = JobEvent.decode(recorder.recv(9000))
    assert (event.kind, event.text, event.node, event.attributes) == ("job-failed", "it died", "n7", {"job": "a=b"})
    assert before - 61 * 10**9 < event.at < time.time_ns() - 59 * 10**9


@pytest.mark.parametrize(
    "args",
    [
        ("--kind", "incident", "x"),
        ("--attr", "x", "y"),
        ("--attr", "a b=1", "y"),
        ("--at", "@0", "x"),
        ("--at", "never", "x"),
        (" ",),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(exhume, recorder, args):
    result = add(exhume, recorder.getsockname(), *args)
    assert result.returncode == exit_codes.ERROR
    assert len(result.stderr.splitlines()) == 1


def test_no_recorder_is_no_data(exhume, tmp_path):
    assert add(exhume, tmp_path / "none.sock", "x").returncode == exit_codes.NO_DATA
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(tmp_path / "gone.sock"))
    assert add(exhume, tmp_path / "gone.sock", "x").returncode == exit_codes.NO_DATA


def test_a_recorder_that_takes_nothing_is_an_error_after_a_moment(exhume, recorder, monkeypatch):
    monkeypatch.setattr("exhume.cli.commands.event.add._PATIENCE_S", 0.2)
    codes = {add(exhume, recorder.getsockname(), "x").returncode for _ in range(30)}
    assert codes == {exit_codes.OK, exit_codes.ERROR}


def test_only_the_service_has_a_socket_by_itself(monkeypatch, tmp_path):
    default = tmp_path / "run" / "events.sock"
    monkeypatch.setattr("exhume.cli.recorder.DEFAULT_SOCKET", default)
    assert events_socket(AUTO, SYSTEM_DIRECTORY) is None
    default.parent.mkdir()
    assert events_socket(AUTO, SYSTEM_DIRECTORY) == default
    assert events_socket(AUTO, tmp_path) is None
    assert events_socket(None, SYSTEM_DIRECTORY) is None
    assert events_socket(tmp_path / "own", tmp_path) == tmp_path / "own"


@pytest.mark.root
@pytest.mark.slow
def test_a_real_recorder_records_it(exhume, tmp_path):
    path, directory = tmp_path / "run" / "e.sock", tmp_path / "recording"
    recorder = RecorderProcess(directory, tmp_path / "said", "--events-socket", str(path))
    try:
        recorder.recording()
        args = ("--kind", "job-failed", "--attr", "password=hunter2", "--attr", "job=train-7", "--node", "gpu-7")
        result = add(exhume, path, *args, "train-7 died")
        assert result.returncode == exit_codes.OK, result.stderr
        until("it is recorded", lambda: any(row["kind"] == "job-failed" for row in rows(directory, "events", "kind")))
        assert recorder.stop() == exit_codes.OK
    finally:
        recorder.kill()
    assert not path.exists()
    listed = json.loads(exhume("events", "--dir", str(directory), "--kind", "job-failed", "--json").stdout)["events"]
    assert [(event["source"], event["severity"]) for event in listed] == [("jobs", "error")]
    assert listed[0]["text"] == "train-7 died (node=gpu-7, password=***, job=train-7)"
    assert (listed[0]["job"], listed[0]["member"]) == ("train-7", "gpu-7")


class Ray(BaseHTTPRequestHandler):
    """Answers as a Ray did from which they were recorded."""

    def do_GET(self):
        answers = json.loads(ANSWERS.read_text())
        node = answers["/api/v0/nodes"]["data"]["result"]["result"][0]
        raylet = {"nodeId": node["node_id"], "nodeManagerHostname": "head"}
        answers["/nodes"] = {"data": {"summary": [{"raylet": raylet}]}}
        # This Ray has forgotten the tasks.
        answer = answers.get(self.path.partition("?")[0])
        body = json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def dashboard():
    server = HTTPServer(("127.0.0.1", 0), Ray)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_failures_of_ray_are_listed(exhume, dashboard, monkeypatch):
    # The recorded failures are older than a day by now.
    monkeypatch.setattr("exhume.cli.commands.event.ray.MAX_AGE_NS", 1 << 62)
    said = exhume("event", "ray", "--address", dashboard, "--dry-run").stdout.splitlines()
    assert sorted({line.split()[1] for line in said}) == ["actor-failed", "job-failed"]


def test_failures_of_ray_are_sent_once(exhume, dashboard, recorder, monkeypatch):
    monkeypatch.setattr("exhume.cli.commands.event.ray.MAX_AGE_NS", 1 << 62)
    args = ("event", "ray", "--address", dashboard, "--events-socket", recorder.getsockname())
    sent = exhume(*args).stdout.splitlines()
    heard = [JobEvent.decode(recorder.recv(9000)) for _ in sent]
    assert {(event.kind, event.job, event.member) for event in heard} == {
        ("job-failed", "train-7", "head"),
        ("actor-failed", "train-7", "head"),
    }
    command = [sys.executable, "-m", "exhume.cli.main", *args, "--follow", "--every", "1s", "--dry-run"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    time.sleep(4)
    following.terminate()
    said = following.communicate(timeout=60)[0]
    ids = re.findall(r"(?:actor|job)=\w+", said)
    assert len(said.splitlines()) == len(set(said.splitlines())) and len(ids) == len(set(ids))


@pytest.mark.parametrize("address", ["127.0.0.1:8265", "file:///etc/passwd", "http://"])
def test_an_address_that_is_none_is_refused(exhume, address):
    assert exhume("event", "ray", "--address", address, check=False).returncode == exit_codes.ERROR


def test_no_ray_is_an_error_in_a_sentence(exhume):
    result = exhume("event", "ray", "--address", "http://127.0.0.1:9", check=False)
    assert result.returncode == exit_codes.ERROR
    assert len(result.stderr.splitlines()) == 1
