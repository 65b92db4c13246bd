"""A real Ray, from PyPI in an environment of its own, and a cluster of it: a head and workers, in a network of their
own."""

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

from tests.parts import missing, need
from tests.system.machines.machine_tree import cache_directory

ROOT = Path(__file__).resolve().parents[3]
# A driver, its workers and the head share one small machine.
_STORE_BYTES = 200_000_000
_PATIENCE_S = 120.0
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}
# Ray replaces a loopback address by that of the interface to the internet, also where it is given (`ray start
# --node-ip-address`, `ray.init`): python/ray/_private/services.py, resolve_ip_for_localhost, 2.60. So the network of a
# cluster has one, which leads nowhere.
_NETWORK = """
ip link set lo up
ip address add 192.0.2.1/32 dev lo
ip route add default dev lo src 192.0.2.1
echo ready
exec cat
"""


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
    """A head without cores, and workers of one core each, as processes in sessions of their own. `inside` starts a
    command in their network."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # A short path, for its sockets.
        self._place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.address = f"127.0.0.1:{free_port()}"
        self._network: subprocess.Popen[bytes] | None = None
        self._head: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.inside: list[str] = []

    def __enter__(self) -> Self:
        self._network = subprocess.Popen(
            [need("setpriv"), "--pdeathsig", "KILL", need("unshare"), "--net", "sh", "-ec", _NETWORK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._network.stdout is not None and self._network.stdout.readline() == b"ready\n"
        self.inside = [need("nsenter"), f"--net=/proc/{self._network.pid}/ns/net", "--"]
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
        _kill(worker)
        worker.wait(30)

    def running(self) -> list[str]:
        """What the processes of the newest worker are called."""
        found = []
        for pid in _session(self.workers[-1]):
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return [each.strip() for each in found]

    def _start(self, name: str, options: Sequence[str]) -> subprocess.Popen[bytes]:
        command = [*self.inside, self._programs / "ray", "start", "--block", *options]
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
                [*self.inside, self._programs / "python", "-c", script],
                capture_output=True,
                text=True,
                check=False,
                env=environment(),
            )
            said = done.stdout + done.stderr
            if done.returncode == 0 and float(done.stdout.split()[-1]) >= cores:
                return
            ended = [name for name, process in self._processes() if process.poll() is not None]
            assert not ended, f"{ended[0]} ended: {self._log(ended[0])}"
            time.sleep(1)
        logs = "".join(f"\n{name}: {self._log(name)}" for name, _ in self._processes())
        raise AssertionError(f"Ray has no {cores} cores after {_PATIENCE_S:.0f} s: {said[-500:]}{logs}")

    def _processes(self) -> list[tuple[str, "subprocess.Popen[bytes]"]]:
        head = [] if self._head is None else [("head", self._head)]
        return [*head, *((f"worker{number}", worker) for number, worker in enumerate(self.workers))]

    def _log(self, name: str) -> str:
        return (self._place / f"{name}.log").read_text(errors="replace")[-1000:]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.workers, self._head):
            if process is not None:
                stop(process)
        if self._network is not None:
            self._network.communicate()
        shutil.rmtree(self._place, ignore_errors=True)


def stop(leader: "subprocess.Popen[bytes]") -> None:
    """End a head or worker with all that it started. Only the leader gets a signal: it has its node drained, and waits
    30 s for that if the others get one too (python/ray/_private/node.py, 2.60)."""
    leader.terminate()
    with suppress(subprocess.TimeoutExpired):
        leader.wait(20)
    _kill(leader)
    leader.wait(30)


def _session(leader: "subprocess.Popen[bytes]") -> list[int]:
    """The processes of a head or worker: recent versions of Ray give each program of a user a process group of its own,
    but no session."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(path.name)) == leader.pid:
                found.append(int(path.name))
    return found


def _kill(leader: "subprocess.Popen[bytes]") -> None:
    for pid in _session(leader):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    """The variables of Ray and of the report: the sources of this tree, and nothing that belongs to the tests. With a
    token, as recent versions of Ray want one: else a file in the user's home would decide whether there is one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))}
    return {**clean, **TOKEN, "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"}
