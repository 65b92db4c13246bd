"""A real Ray, from PyPI in an environment of its own, and a cluster of it: a head and workers, all on loopback."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.parts import missing
from tests.system.machines.machine_tree import cache_directory

ROOT = Path(__file__).resolve().parents[3]
# A driver, its workers and the head share one small machine.
_STORE_BYTES = 200_000_000
_PATIENCE_S = 120.0
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}


def installed(name: str, *packages: str) -> Path:
    """The programs of an environment with these packages, made once in the cache of the tests."""
    venv = cache_directory().parent / name
    if not (venv / "bin/ray").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        command = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(venv)
            missing(f"Ray from a package index ({done.stderr.strip().splitlines()[-1:]})")
    return venv / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RayCluster:
    """A head without cores, and workers of one core each, as processes in sessions of their own."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # A short path, for its sockets.
        self._place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.address = f"127.0.0.1:{free_port()}"
        self._head: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        port = self.address.rpartition(":")[2]
        options = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self._place}"]
        self._head = self._start("head", options)
        try:
            self._wait(0)
        except BaseException:
            # A head that nobody can reach would stay.
            self.__exit__(None, None, None)
            raise
        return self

    def add_worker(self) -> None:
        self.workers.append(self._start(f"worker{len(self.workers)}", [f"--address={self.address}", "--num-cpus=1"]))
        self._wait(len([each for each in self.workers if each.poll() is None]))

    def kill_worker(self) -> None:
        """Kill the newest worker with all that it runs."""
        worker = self.workers.pop()
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(30)

    def running(self) -> list[str]:
        """What the processes of the newest worker are called."""
        group, found = self.workers[-1].pid, []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if os.getpgid(int(path.parent.name)) == group:
                    found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
        return found

    def _start(self, name: str, options: Sequence[str]) -> subprocess.Popen[bytes]:
        command = [self._programs / "ray", "start", "--block", "--node-ip-address=127.0.0.1", *options]
        command += [f"--object-store-memory={_STORE_BYTES}", "--disable-usage-stats"]
        with (self._place / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment())

    def _wait(self, cores: int) -> None:
        """Wait until the cluster has so many cores."""
        script = f"import ray; ray.init('{self.address}'); print(ray.cluster_resources().get('CPU', 0))"
        deadline = time.monotonic() + _PATIENCE_S
        said = ""
        while time.monotonic() < deadline:
            done = subprocess.run(
                [self._programs / "python", "-c", script],
                capture_output=True,
                text=True,
                check=False,
                env=environment(),
            )
            said = done.stdout + done.stderr
            if done.returncode == 0 and float(done.stdout.split()[-1]) >= cores:
                return
            time.sleep(1)
        raise AssertionError(f"Ray has no {cores} cores: {said[-500:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.workers, self._head):
            if process is None or process.poll() is not None:
                continue
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
        shutil.rmtree(self._place, ignore_errors=True)


def environment() -> dict[str, str]:
    """The variables of Ray and of the report: the sources of this tree, and nothing that belongs to the tests. With a
    token, as recent versions of Ray want one: else a file in the user's home would decide whether there is one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))}
    return {**clean, **TOKEN, "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"}
