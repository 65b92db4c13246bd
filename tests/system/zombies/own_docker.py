"""A Docker of the test's own: the lab's, on a stage of the test's own, with containers that run shell scripts."""

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import ascii_lowercase

from exhume.lab.own_docker import OwnDocker as LabDocker
from exhume.lab.stage import stage


def until(what: str, happened: Callable[[], object], patience: float) -> None:
    """Wait until it happened; fails when it doesn't."""
    deadline = time.monotonic() + patience
    while not happened():
        assert time.monotonic() < deadline, f"did not happen within {patience:.0f} s: {what}"
        time.sleep(0.1)


class OwnDocker(LabDocker):
    """The lab's Docker, for tests."""

    @property
    def parent(self) -> str:
        """The cgroup that its containers are in."""
        return f"/{self.cgroup}"

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


@contextmanager
def own_docker() -> Iterator[OwnDocker]:
    """A Docker that leaves nothing behind."""
    # Paths of sockets have to be short; and letters alone stay what they are when paths are generalised.
    name = "".join(random.choices(ascii_lowercase, k=8))
    work = Path(tempfile.mkdtemp(prefix="exhume-docker-", dir="/var/tmp"))
    try:
        with stage("docker", seconds=1.0, name=name, work=work) as playing:
            docker = OwnDocker(playing)
            docker.start()
            yield docker
        assert not list(work.iterdir())
        assert not any(str(work) in line for line in Path("/proc/self/mountinfo").read_text().splitlines())
    finally:
        shutil.rmtree(work)
