"""A real Ray, from PyPI in an environment of its own: a job and an actor that die become events of a recording.

`make test-ray`; the first run installs Ray (about 400 MB) into the cache of the tests. With EXHUME_RAY_ANSWERS=FILE the
answers of its state API are written there: tests/interop/ray-answers.json was made so.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.system.faults.recorder_process import RecorderProcess, exhume, rows, until
from tests.system.ray.ray_cluster import TOKEN, free_port, installed, stop

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(1500)]

PACKAGE = "ray[default]"
DIES = """
import ray
ray.init(address="auto")

@ray.remote
class Fragile:
    def work(self):
        import os
        os._exit(7)

@ray.remote
class Wanted:
    def work(self):
        return 1

wanted = Wanted.remote()
ray.get(wanted.work.remote())
ray.kill(wanted)
ray.get(Fragile.remote().work.remote())
"""
PATHS = {
    **dict.fromkeys(("/api/jobs/", "/api/v0/actors", "/api/v0/nodes", "/api/v0/tasks"), "detail=true"),
    "/nodes": "view=summary",
}


@pytest.fixture(scope="module")
def ray_bin() -> Path:
    return installed("ray-venv", PACKAGE)


@pytest.fixture(scope="module")
def dashboard(ray_bin: Path) -> Iterator[str]:
    """A head node on loopback, small, in a session of its own; a short path, for its sockets."""
    ports = [free_port() for _ in range(3)]
    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    command = [ray_bin / "ray", "start", "--head", "--block", "--num-cpus=1", "--node-ip-address=127.0.0.1"]
    command += [f"--port={ports[0]}", f"--dashboard-port={ports[1]}", f"--ray-client-server-port={ports[2]}"]
    command += ["--dashboard-host=127.0.0.1", "--disable-usage-stats", "--object-store-memory=80000000"]
    command += [f"--temp-dir={place}"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))}
    # Else Ray takes the address of the interface to the internet: python/ray/_private/services.py, get_node_ip_address.
    clean |= {**TOKEN, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with Path(place, "said").open("wb") as said:
        head = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True, env=clean)
    address = f"http://127.0.0.1:{ports[1]}"
    try:
        until("Ray answers", lambda: _answers(f"{address}/api/jobs/") or head.poll() is not None, 240, every=1)
        assert head.poll() is None, Path(place, "said").read_text()
        yield address
    finally:
        stop(head)
        shutil.rmtree(place, ignore_errors=True)


def _ask(url: str, body: bytes | None = None) -> bytes:
    """With the cluster's token. Raises OSError."""
    headers = {"Authorization": f"Bearer {TOKEN['RAY_AUTH_TOKEN']}", "Content-Type": "application/json"}
    with urlopen(Request(url, body, headers), timeout=60) as answer:
        content: bytes = answer.read()
    return content


def _answers(url: str, body: bytes | None = None) -> bool:
    try:
        _ask(url, body)
    except OSError:
        return False
    return True


def test_a_job_that_dies_is_recorded(ray_bin: Path, dashboard: str, tmp_path: Path):
    path, directory = tmp_path / "run/events.sock", tmp_path / "recording"
    recorder = RecorderProcess(directory, tmp_path / "said", "--events-socket", str(path))
    try:
        recorder.recording()
        (tmp_path / "dies.py").write_text(DIES)
        until("the job is taken", lambda: _submit(dashboard, f"{ray_bin}/python {tmp_path}/dies.py"), 240, every=2)
        until("the job failed", lambda: _status(dashboard) == "FAILED", 300, every=1)
        _keep_answers(dashboard)
        began = time.time_ns()
        done = subprocess.run(
            [sys.executable, "-m", "exhume.cli.main", "event", "ray", "--address", dashboard, "--events-socket", path],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **TOKEN},
        )
        assert done.returncode == 0, done.stderr
        until("both are recorded", lambda: len(_reported(directory)) >= 2)
        assert recorder.stop() == 0
    finally:
        recorder.kill()
    found = exhume("events", "--dir", directory, "--kind", "job-failed", "--kind", "actor-failed")["events"]
    assert sorted(event["kind"] for event in found) == ["actor-failed", "job-failed"], "the one that was killed is not"
    job = next(event["text"] for event in found if event["kind"] == "job-failed")
    actor = next(event["text"] for event in found if event["kind"] == "actor-failed")
    assert "train-7" in job and "dies.py" in job
    assert "Fragile" in actor
    assert {(event["job"], event["member"]) for event in found} == {("train-7", socket.gethostname())}
    assert time.time_ns() - began < 120e9


def _submit(dashboard: str, entrypoint: str) -> bool:
    """Hand in a job; False while Ray is not ready to take one."""
    body = json.dumps({"entrypoint": entrypoint, "submission_id": "train-7"}).encode()
    return _answers(f"{dashboard}/api/jobs/", body)


def _status(dashboard: str) -> str:
    return str(json.loads(_ask(f"{dashboard}/api/jobs/train-7"))["status"])


def _reported(directory: Path) -> list[str]:
    return [row["kind"] for row in rows(directory, "events", "kind", "source") if row["source"] == "jobs"]


def _keep_answers(dashboard: str) -> None:
    """For the test without a Ray."""
    kept = os.environ.get("EXHUME_RAY_ANSWERS")
    if kept:
        answers = {}
        for path, query in PATHS.items():
            answers[path] = json.loads(_ask(f"{dashboard}{path}?{query}"))
        Path(kept).write_text(json.dumps(answers, indent=1) + "\n")
