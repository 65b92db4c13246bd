"""A Docker of the test's own: what it writes lies on its own tmpfs, its containers below its own cgroup.

Closing it ends every process that has to do with it and leaves no mount, cgroup or file, whatever state it was in.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase

from tests.parts import SEARCH_PATH, missing, need

from exhume.collect.cgroup_layout import hierarchies
from exhume.collect.host import Host
from exhume.lab.mounts import mount_tmpfs, unmount

SIZE, FILES = 256 << 20, 20_000
START_S, STOP_S = 20.0, 15.0
DAEMONS = ("dockerd", "containerd", "containerd-shim", "containerd-shim-runc-v2", "runc")
# What it makes outside of its directories, wherever those are: innermost first.
ELSEWHERE = tuple(
    Path(name)
    for name in (
        "/etc/docker/key.json",
        "/etc/docker",
        "/run/docker/plugins",
        "/run/docker",
        "/run/containerd/s",
        "/run/containerd",
    )
)


def until(what: str, happened: Callable[[], object], patience: float) -> None:
    """Wait until it happened; fails when it doesn't."""
    deadline = time.monotonic() + patience
    while not happened():
        assert time.monotonic() < deadline, f"waited {patience:.0f} s in vain: {what}"
        time.sleep(0.1)


class OwnDocker:
    """dockerd with the work directory's data, socket and containerd. `room` is a directory for whoever uses it."""

    def __init__(self) -> None:
        # Paths of sockets have to be short; and letters alone stay what they are when paths are generalised.
        self.work = Path(tempfile.gettempdir()) / f"exhume-docker-{''.join(random.choices(ascii_lowercase, k=8))}"
        self.work.mkdir(mode=0o700)
        self.cgroup = f"/{self.work.name}/docker"
        self.socket = self.work / "docker.sock"
        self.room = self.work / "room"
        self._was_there = {path for path in ELSEWHERE if path.exists()}
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "OwnDocker":
        try:
            mount_tmpfs(self.work, SIZE, FILES)
            self.room.mkdir()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        # The machine's own settings are for the machine's own Docker.
        settings = self.work / "daemon.json"
        settings.write_text("{}")
        command = ["dockerd", "--config-file", settings, "-H", f"unix://{self.socket}"]
        command += ["--data-root", self.work / "data", "--exec-root", self.work / "exec"]
        command += ["--pidfile", self.work / "docker.pid", "--storage-driver", "vfs"]
        command += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        command += ["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", self.cgroup]
        with self._log.open("wb") as log:
            self._daemon = subprocess.Popen(
                command,
                env={**os.environ, "PATH": SEARCH_PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        daemon = self._daemon
        until("dockerd answers", lambda: daemon.poll() is not None or self._answers(), START_S)
        assert daemon.poll() is None, f"dockerd ended: {self._log.read_text(errors='replace')[-2000:]}"

    @property
    def _log(self) -> Path:
        return self.work / "dockerd.log"

    def _answers(self) -> bool:
        return self._run("version").returncode == 0

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        surroundings = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        return subprocess.run(
            ["docker", "-H", f"unix://{self.socket}", *words],
            env={**surroundings, "PATH": SEARCH_PATH, "DOCKER_CONFIG": str(self.work)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def __call__(self, *words: str) -> str:
        """`docker` with these words; what it said."""
        done = self._run(*words)
        assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def import_busybox(self, image: str) -> None:
        """An image with nothing but a static busybox in it."""
        program = need("busybox")
        if subprocess.run(["ldd", program], capture_output=True, check=False).returncode == 0:
            missing("a busybox that is linked statically (busybox-static)")
        archive = self.work / "image.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(Path(program).resolve(), "bin/busybox")
        self("import", str(archive), image)

    def run(self, name: str, image: str, script: str, *options: str) -> str:
        """Start a container without a network that runs a shell script; its id."""
        return self(
            "run", "-d", "--name", name, "--network", "none", *options, image, "/bin/busybox", "sh", "-c", script
        )

    def started(self, since: int) -> Counter[str]:
        """How often each container was started from a unix time until now, by id."""
        # An end in the future would keep the answer open.
        window = ("--since", str(since), "--until", str(int(time.time())))
        return Counter(self("events", *window, "--filter", "event=start", "--format", "{{.ID}}").split())

    def close(self) -> None:
        """Containers, daemons, mounts, cgroups, files: in this order, each also when the one before went wrong."""
        with contextlib.ExitStack() as steps:
            steps.callback(self._remove_elsewhere)
            steps.callback(self._remove_cgroups)
            steps.callback(self._remove_work)
            steps.callback(self._kill_what_is_left)
            steps.callback(self._stop)
            if self._daemon is not None and self._daemon.poll() is None:
                containers = self._run("ps", "-aq").stdout.split()
                if containers:
                    self._run("rm", "-f", *containers)
        assert not self._processes()
        assert not any(str(self.work) in line for line in Path("/proc/self/mountinfo").read_text().splitlines())

    def _stop(self) -> None:
        if self._daemon is None:
            return
        self._daemon.terminate()
        try:
            self._daemon.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait(STOP_S)

    def _kill_what_is_left(self) -> None:
        """containerd, its shims and their containers outlive a dockerd that was killed."""
        deadline = time.monotonic() + STOP_S
        while (left := self._processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def _processes(self) -> set[int]:
        """Those in its cgroups, and those that were started with its directory among their words."""
        found = set()
        for parent in self._cgroup_parents():
            for procs in parent.rglob("cgroup.procs"):
                with contextlib.suppress(OSError):
                    found |= set(map(int, procs.read_text().split()))
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_text(errors="replace").split("\0")
                if Path(words[0]).name in DAEMONS and any(str(self.work) in word for word in words):
                    found.add(int(process.name))
        return found

    def _cgroup_parents(self) -> list[Path]:
        places = (hierarchy.path / self.work.name for hierarchy in hierarchies(Host()))
        # Hierarchies without a controller, such as systemd's own.
        others = Path("/sys/fs/cgroup").glob(f"*/{self.work.name}")
        return sorted({place for place in (*places, *others) if place.is_dir()})

    def _remove_cgroups(self) -> None:
        for parent in self._cgroup_parents():
            children = [path for path in parent.rglob("*") if path.is_dir()]
            for directory in [*sorted(children, key=lambda path: -len(path.parts)), parent]:
                with contextlib.suppress(FileNotFoundError):
                    directory.rmdir()

    def _remove_work(self) -> None:
        """Unmounting the tmpfs frees the pages in it, and so the zombies that they pin."""
        with Path("/proc/self/mountinfo").open() as mounts:
            points = [Path(line.split(" ", 5)[4]) for line in mounts]
        for point in reversed([point for point in points if point.is_relative_to(self.work)]):
            unmount(point)
        shutil.rmtree(self.work)

    def _remove_elsewhere(self) -> None:
        for path in ELSEWHERE:
            if path in self._was_there or not path.exists():
                continue
            if not path.is_dir():
                path.unlink()
                continue
            # Shims that were killed leave theirs.
            for socket in filter(Path.is_socket, path.iterdir()):
                socket.unlink()
            # What another Docker put there meanwhile stays.
            with contextlib.suppress(OSError):
                path.rmdir()
