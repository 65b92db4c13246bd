"""The image of deploy/image, built by a Docker of the test's own on a base that debootstrap makes, with no registry.

The base and Docker's layers stay in the cache, so that only what changed is built again.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.parts import SEARCH_PATH, missing, need
from tests.system.kubernetes.binaries import cache_directory, locked
from tests.system.kubernetes.own_cluster import unmount_below
from tests.system.runtimes.runtime_parts import at_work, remove_cgroup
from tests.system.zombies.own_docker import until

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "deploy/image/Dockerfile"
BASE, IMAGE = "plain.test/base:1", "exhume:test"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
# As in Debian's own slim images: what only people read, and lists of packages.
LEFT_OUT = ("doc", "man", "info", "locale", "lintian", "linda", "groff", "zoneinfo")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# What pip may be reported about where packages come from.
INDEX = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT")
PATIENCE_S = 900
_ELSEWHERE = tuple(map(Path, ("/etc/docker/key.json", "/etc/docker", "/run/docker/plugins", "/run/docker")))


class OwnDocker:
    """dockerd whose layers are in the cache, and whose containers are below a cgroup of its own."""

    def __init__(self, work: Path, data: Path) -> None:
        self.work, self._data = work, data
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        # The builder that needs no plugin.
        return {**known, "PATH": SEARCH_PATH, "DOCKER_CONFIG": str(self.work), "DOCKER_BUILDKIT": "0"}

    def __call__(self, *args: str, patience: float = PATIENCE_S) -> str:
        done = self.run(*args, patience=patience)
        assert done.returncode == 0, f"docker {args[0]}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout.strip()

    def run(self, *args: str, patience: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "-H", f"unix://{self.work}/d.sock", *args],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )

    def start(self) -> None:
        args = [need("dockerd"), f"--host=unix://{self.work}/d.sock", "--data-root", str(self._data)]
        args += ["--exec-root", f"{self.work}/x", "--pidfile", f"{self.work}/pid", "--storage-driver", "overlay2"]
        args += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        args += ["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{self.work.name}"]
        (self.work / "daemon.json").write_text("{}")
        args += ["--config-file", str(self.work / "daemon.json")]
        with (self.work / "log").open("wb") as log:
            self._daemon = subprocess.Popen(
                args, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        daemon = self._daemon
        until("dockerd answers", lambda: daemon.poll() is not None or self.run("version").returncode == 0, 60)
        assert daemon.poll() is None, (self.work / "log").read_text()

    def stop(self) -> None:
        if self._daemon is not None:
            with suppress(AssertionError):
                if containers := self("ps", "-aq").split():
                    self("rm", "-f", *containers)
            self._daemon.terminate()
            self._daemon.wait(60)


@contextmanager
def own_docker() -> Iterator[OwnDocker]:
    """A Docker that leaves nothing behind but layers in the cache."""
    cache = cache_directory()
    work = Path(tempfile.mkdtemp(prefix="exhume-image-", dir="/var/tmp"))
    elsewhere = [
        path for path in (*_ELSEWHERE, *map(Path, ("/run/containerd/s", "/run/containerd"))) if not path.exists()
    ]
    with locked(cache / "docker.lock"):
        docker = OwnDocker(work, cache / "docker")
        try:
            docker.start()
            yield docker
        finally:
            docker.stop()
            until("its helpers have ended", lambda: not at_work(work), 60)
            remove_cgroup(work.name)
            for path in elsewhere:
                with suppress(OSError):
                    path.rmdir() if path.is_dir() else path.unlink()
            unmount_below(work)
            shutil.rmtree(work)


def build(docker: OwnDocker) -> str:
    """The image of the tree as it is; its id."""
    if docker.run("image", "inspect", BASE).returncode != 0:
        docker("import", str(base_archive()), BASE)
    given = [f"--build-arg={name}={os.environ[name]}" for name in INDEX if os.environ.get(name)]
    # Of the machine's network: Docker's own would need rules of the firewall.
    args = ["--network=host", f"--build-arg=BASE={BASE}", *given, "-f", str(DOCKERFILE)]
    docker("build", *args, "-t", IMAGE, str(ROOT))
    return docker("image", "inspect", "-f", "{{.Id}}", IMAGE)


def exhume_image() -> Path:
    """The image as an archive of the cache, built again when the tree has changed."""
    cache = cache_directory()
    kept = cache / f"exhume-{_tree_hash()}.tar"
    if not kept.exists():
        with own_docker() as docker:
            build(docker)
            for outdated in cache.glob("exhume-*.tar*"):
                outdated.unlink()
            docker("save", "-o", str(kept.with_suffix(".tar.new")), IMAGE)
            kept.with_suffix(".tar.new").rename(kept)
    return kept


def base_archive() -> Path:
    """A small Debian with Python, and this machine's certificates: packages may come through a proxy of its own."""
    cache = cache_directory()
    kept = cache / "base-1.tar"
    with locked(cache / "base.lock"):
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as name:
                tree = Path(name) / "tree"
                _debootstrap(tree)
                for part in LEFT_OUT:
                    shutil.rmtree(tree / "usr/share" / part, ignore_errors=True)
                for part in ("var/cache/apt", "var/lib/apt/lists", "var/cache/debconf", "var/log"):
                    shutil.rmtree(tree / part, ignore_errors=True)
                    (tree / part).mkdir(parents=True)
                if CERTIFICATES.exists():
                    shutil.copy(CERTIFICATES, tree / CERTIFICATES.relative_to("/"))
                with tarfile.open(kept.with_suffix(".new"), "w") as tar:
                    for entry in sorted(tree.iterdir()):
                        if entry.name not in ("proc", "sys", "dev"):
                            tar.add(entry, entry.name)
            kept.with_suffix(".new").rename(kept)
    return kept


def _debootstrap(into: Path) -> None:
    facts = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = facts.get("VERSION_CODENAME", "stable").strip('"')
    listed = [need("apt-get"), "indextargets", "--format", "$(SITE)", "Created-By: Packages", f"Codename: {suite}"]
    mirror = subprocess.run(listed, capture_output=True, text=True, check=False).stdout.split()[:1]
    args = [need("debootstrap"), "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(into), *mirror]
    surroundings = {**os.environ, "PATH": SEARCH_PATH, "LC_ALL": "C"}
    done = subprocess.run(args, env=surroundings, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        missing(f"a package source that debootstrap can use ({done.stdout.strip().splitlines()[-1:]})")


def copied_into_image() -> list[str]:
    """What the first stage of the Dockerfile copies from the tree."""
    copies = (line.split()[1:-1] for line in DOCKERFILE.read_text().splitlines() if line.startswith("COPY "))
    return [source for sources in copies for source in sources if not source.startswith(("--from", "/"))]


def _tree_hash() -> str:
    """Of what goes into the image."""
    digest = hashlib.sha256()
    for name in ("deploy/image", *copied_into_image()):
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and not {"__pycache__", "node_modules"} & set(path.parts):
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    print(exhume_image())
