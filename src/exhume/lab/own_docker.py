"""A Docker daemon of the scenario: its data on a tmpfs, its containers below its own cgroup, its processes marked.

If no Docker is running on the machine, it also listens on the usual socket, as the machine's own daemon would.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path

from exhume.collect.cgroup.layout import hierarchies
from exhume.collect.containers.docker import DOCKER_SOCKET
from exhume.lab.leftovers import NewPath, OwnCgroup, OwnMount, Process
from exhume.lab.mounts import SEARCH_PATH, mount_tmpfs
from exhume.lab.programs.keeper import MARK
from exhume.lab.stage import Stage, wait_until
from exhume.model.errors import LabError
from exhume.procfs.host import Host

_SIZE, _FILES = 384 << 20, 60_000
_COMMAND_S = 60.0
_ANSWER_S = 5.0
_LONGEST_SOCKET = 107
# What Docker creates outside of its own directories, innermost first.
_ELSEWHERE = (
    "/etc/docker/key.json",
    "/etc/docker",
    "/run/docker/plugins",
    "/run/docker",
    "/run/containerd/s",
    "/run/containerd",
)


def docker_missing() -> str:
    """Why the lab can't run Docker here, in a sentence; empty if it can."""
    for program in ("dockerd", "docker", "containerd", "runc", "busybox"):
        if shutil.which(program, path=SEARCH_PATH) is None:
            return f"{program} is not installed"
    busybox = str(shutil.which("busybox", path=SEARCH_PATH))
    if subprocess.run(["ldd", busybox], capture_output=True, check=False).returncode == 0:
        return "busybox is not linked statically"
    return ""


class OwnDocker:
    """dockerd on a stage. Everything that it creates goes with the stage. `room` is a directory on its tmpfs."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        # Socket paths must be short, and containerd's are deeply nested.
        self.work = stage.directory / "d"
        self.room = self.work / "room"
        self.socket = self.work / "docker.sock"
        self.cgroup = f"{stage.name}-engine"

    def start(self) -> None:
        """Start the daemon. Raises LabError if it doesn't come up."""
        if len(os.fsencode(self.work / "x/containerd/containerd-debug.sock")) > _LONGEST_SOCKET:
            raise LabError(
                f"{self.work} is too long a path for Docker's sockets; choose a shorter directory with --work"
            )
        usual = DOCKER_SOCKET.parent.is_dir() and not _is_listening(DOCKER_SOCKET)
        self._note(usual)
        mount_tmpfs(self.work, _SIZE, _FILES)
        self.room.mkdir()
        (self.work / "daemon.json").write_text("{}")
        log_file = self.work / "dockerd.log"
        with log_file.open("wb") as log:
            started = subprocess.Popen(
                self._argv(usual),
                env={**os.environ, "PATH": SEARCH_PATH, MARK: self._stage.directory.name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._stage.running.append(started)
        if process := Process.of(started.pid):
            self._stage.leftovers.add(process)
        wait_until("dockerd answers", lambda: started.poll() is not None or self._run("version").returncode == 0)
        if started.poll() is not None:
            raise LabError(f"dockerd ended: {log_file.read_text(errors='replace').strip().splitlines()[-1:]}")

    def __call__(self, *args: str) -> str:
        """Run `docker` with these arguments and return its output."""
        done = self._run(*args)
        if done.returncode != 0:
            raise LabError(f"docker {args[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    def import_busybox(self, image: str) -> None:
        """Import an image with nothing but a static busybox."""
        archive = self.work / "image.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(Path(str(shutil.which("busybox", path=SEARCH_PATH))).resolve(), "bin/busybox")
        self("import", str(archive), image)

    def _note(self, usual: bool) -> None:
        """Record all that is about to be created, in reverse order of its removal."""
        add = self._stage.leftovers.add
        for path in reversed(_ELSEWHERE):
            if not Path(path).exists():
                add(NewPath(path))
        if usual:
            add(NewPath(os.fspath(DOCKER_SOCKET)))
        places = {hierarchy.path for hierarchy in hierarchies(Host())}
        # Hierarchies without a controller, for example systemd's own, are not listed.
        with contextlib.suppress(OSError):
            places |= {path for path in Path("/sys/fs/cgroup").iterdir() if (path / "cgroup.procs").exists()}
        for place in sorted(places):
            add(OwnCgroup(os.fspath(place / self.cgroup)))
        add(OwnMount(os.fspath(self.work)))

    def _argv(self, usual: bool) -> list[str]:
        hosts = (self.socket, DOCKER_SOCKET) if usual else (self.socket,)
        return [
            *("dockerd", "--config-file", str(self.work / "daemon.json"), *(f"--host=unix://{host}" for host in hosts)),
            *("--data-root", str(self.work / "data"), "--exec-root", str(self.work / "x")),
            *("--pidfile", str(self.work / "docker.pid"), "--storage-driver", "vfs"),
            *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
            *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{self.cgroup}"),
        ]

    def _run(self, *args: str) -> subprocess.CompletedProcess[str]:
        surroundings = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        mark = {MARK: self._stage.directory.name}
        return subprocess.run(
            ["docker", "-H", f"unix://{self.socket}", *args],
            env={**surroundings, **mark, "PATH": SEARCH_PATH, "DOCKER_CONFIG": str(self.work)},
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )


def _is_listening(path: Path) -> bool:
    """Whether a process listens on a socket. A killed process leaves its socket behind, and connections are refused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_ANSWER_S)
        try:
            client.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True
