"""The image as `docker build` makes it: small, with a read-only root, and it records the host."""

import gzip
import os
import re
import shutil
import socket
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.system.deploy.own_image import IMAGE, OwnDocker, build, own_docker
from tests.system.kubernetes.own_cluster import until

from exhume.store.read.recording import Recording

pytestmark = [
    pytest.mark.root,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.needs("docker", "dockerd", "debootstrap"),
]

MOST_COMPRESSED = 180_000_000
# As in the DaemonSet, but for CAP_PERFMON, which Docker 20.10 doesn't know.
CONFINED = ["--read-only", "--tmpfs", "/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host"]
# Root without CAP_CHOWN may give its files to the group of the page only as a member.
RECORDER = [
    *CONFINED,
    "--pid=host",
    "--group-add=8420",
    *(f"--cap-add={name}" for name in ("SYS_ADMIN", "SYSLOG", "SYS_PTRACE")),
]


@pytest.fixture(scope="module")
def docker() -> Iterator[OwnDocker]:
    with own_docker() as own:
        build(own)
        yield own


@pytest.fixture
def recordings(docker: OwnDocker) -> Iterator[Path]:
    directory = docker.work / "recordings"
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_it_is_small(docker: OwnDocker, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    docker("save", "-o", str(archive), IMAGE)
    sizes = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.endswith("layer.tar") and member.isfile():
                packed = tmp_path / "layer.gz"
                with tar.extractfile(member) as layer, gzip.open(packed, "wb", compresslevel=6) as out:
                    shutil.copyfileobj(layer, out)
                sizes[member.name] = packed.stat().st_size
    total = sum(sizes.values())
    print(f"\nimage, compressed as a registry does: {total / 1e6:.0f} MB; its layers: {sorted(sizes.values())}")
    assert total <= MOST_COMPRESSED


def test_it_records_the_host(docker: OwnDocker, recordings: Path) -> None:
    mounts = [f"--volume={recordings}:/var/lib/exhume", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:ro"]
    docker("run", "--rm", *RECORDER, *mounts, "-e", "EXHUME_NODE_NAME=node-1", IMAGE, "record", "--for", "5s")
    recording = Recording.open(recordings)
    assert recording.facts.node == "node-1"
    missing = {each.source for each in recording.facts.sources_missing}
    assert missing.isdisjoint({"stacks", "process-names", "kernel-log", "exit-codes", "cgroups", "throttling"})
    # Processes of the host, this one among them.
    processes = recording.read("processes", None, ["pid", "comm"]).to_pylist()
    assert len(processes) > 3 and recording.read("cpu").num_rows >= 3 * (os.cpu_count() or 1)


def test_the_page_runs_as_an_ordinary_user(docker: OwnDocker, recordings: Path) -> None:
    volume = f"--volume={recordings}:/var/lib/exhume"
    docker("run", "--rm", *RECORDER, volume, IMAGE, "record", "--for", "3s", "--group", "exhume")
    address = _free_address()
    page = [*CONFINED, "--user", "8420:8420", f"{volume}:ro", IMAGE, "serve", "--no-open", "--listen", address]
    name = f"page-{time.monotonic_ns()}"
    docker("run", "-d", "--name", name, *page)
    try:
        until("the page answers", lambda: _body(f"http://{address}/") is not None, 60)
    finally:
        docker("rm", "-f", name)


def test_its_metrics_are_scraped(docker: OwnDocker, recordings: Path) -> None:
    volumes = [f"--volume={recordings}:/var/lib/exhume", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:ro"]
    address, name = _free_address(), f"metrics-{time.monotonic_ns()}"
    docker("run", "-d", "--name", name, *RECORDER, *volumes, "-e", f"EXHUME_METRICS={address}", IMAGE, "record")
    try:

        def busy_seconds() -> float:
            """CPU time of the host's cores, 0 until there is any."""
            lines = (_body(f"http://{address}/metrics") or "").splitlines()
            return sum(float(line.split()[1]) for line in lines if line.startswith("exhume_cpu_seconds_total{"))

        until("a scrape has the host's cores", lambda: busy_seconds() > 0, 60)
        first = busy_seconds()
        until("the next one has more", lambda: busy_seconds() > first, 60)
        cores = re.search(r"^exhume_cores (\d+)", _body(f"http://{address}/metrics") or "", re.MULTILINE)
        assert cores is not None and int(cores[1]) == os.cpu_count()
    finally:
        docker("rm", "-f", name)


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _body(url: str) -> str | None:
    """What a server answers; None where it doesn't."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())
    return None


def test_nothing_of_how_it_was_built_is_in_it(docker: OwnDocker) -> None:
    history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", IMAGE)
    environment = docker("image", "inspect", "-f", "{{json .Config.Env}}", IMAGE)
    assert "PIP_" not in history + environment
    listed = docker("run", "--rm", "--entrypoint", "/bin/ls", IMAGE, "/opt/exhume/bin")
    assert "exhume" in listed.split() and "pip" not in listed.split()
