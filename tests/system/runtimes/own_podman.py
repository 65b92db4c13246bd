"""A Podman of the test's own: storage, state and socket below a directory, containers below a cgroup of their own."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.parts import SEARCH_PATH, need
from tests.system.runtimes.runtime_parts import PATIENCE_S, at_work, remove_cgroup
from tests.system.zombies.own_docker import until

from exhume.collect.containers.docker import Engine, EngineError


@dataclass(frozen=True)
class OwnPodman:
    """`podman` with a service that answers at `socket`."""

    work: Path
    socket: Path
    cgroup: str

    def __call__(self, *args: str) -> str:
        done = subprocess.run(
            [*self.program, *args],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def run(self, name: str, image: str, script: str, *options: str) -> str:
        """Start a container without a network that runs a shell script; its id."""
        # Its defaults are above what a limited machine may give.
        limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
        place = ("--network", "none", "--cgroup-parent", f"/{self.cgroup}")
        return self("run", "-d", "--name", name, *place, *limits, *options, image, "/bin/busybox", "sh", "-c", script)

    def import_busybox(self, image: str) -> None:
        archive = self.work / "image.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(Path(need("busybox")).resolve(), "bin/busybox")
        self("import", "-q", str(archive), image)

    @property
    def program(self) -> list[str]:
        return [
            *("podman", "--root", str(self.work / "root"), "--runroot", str(self.work / "run")),
            *("--tmpdir", str(self.work / "tmp"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"),
            *("--events-backend", "file", "--runtime", need("runc")),
        ]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": SEARCH_PATH}


@contextmanager
def own_podman() -> Iterator[OwnPodman]:
    """A Podman that leaves nothing behind."""
    work = Path(tempfile.mkdtemp(prefix="exhume-podman-", dir="/var/tmp"))
    podman = OwnPodman(work, work / "podman.sock", work.name)
    args = [*podman.program, "system", "service", "-t", "0", f"unix://{podman.socket}"]
    with (work / "service.log").open("wb") as log:
        service = subprocess.Popen(args, env=podman.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until("podman answers", lambda: service.poll() is not None or _answers(podman.socket), PATIENCE_S)
        assert service.poll() is None, (work / "service.log").read_text()
        yield podman
        until("its containers are removed", lambda: _removed(podman), PATIENCE_S)
    finally:
        service.terminate()
        service.wait(PATIENCE_S)
        # What tidies up after a container that ended may still be at it.
        until("its helpers have ended", lambda: not at_work(work), PATIENCE_S)
        remove_cgroup(podman.cgroup)
        shutil.rmtree(work)
    assert not any(str(work) in line for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _answers(socket: Path) -> bool:
    """The file is there a moment before anybody listens at it."""
    with suppress(EngineError):
        return bool(Engine(socket).read("/_ping"))
    return False


def _removed(podman: OwnPodman) -> bool:
    """One that another process of Podman's is just tidying up can't be removed in that moment."""
    with suppress(AssertionError):
        podman("rm", "-f", "-a", "-t", "0")
    return not podman("ps", "-aq")
