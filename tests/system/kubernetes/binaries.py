"""Kubernetes' own programs, compiled once from Debian's source package and kept outside of the repository.

No download names a host: sources come from where this machine's apt has its packages. A build takes 8 CPU minutes and
leaves 360 MB of programs; run this module to build ahead of the tests (`python -m tests.system.kubernetes.binaries`).
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.parts import SEARCH_PATH, missing, need

SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
# Of the API server; raise it with what is changed in its source.
EDITION = "2"
_TREE = "k8s.io/kubernetes"
_REFLECT = "github.com/modern-go/reflect2"
_OPENAPI = "pkg/generated/openapi/zz_generated.openapi.go"
_BUILD_S = 3600
_FETCH_S = 600


def cache_directory() -> Path:
    """Where programs and images are kept between runs: EXHUME_TEST_CACHE, or else the user's cache."""
    base = os.environ.get("EXHUME_TEST_CACHE")
    if not base:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "exhume"
    directory = Path(base) / "kubernetes"
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()


def programs(names: tuple[str, ...] = SERVERS) -> Path:
    """A directory with these programs and kubectl, made now if they are not there yet."""
    cache = cache_directory()
    directory = cache / "bin"
    directory.mkdir(exist_ok=True)
    if not _absent(directory, (*names, "kubectl")):
        return directory
    with locked(cache / "lock"):
        if not (directory / "kubectl").exists():
            _unpack_kubectl(cache, directory)
        if absent := _absent(directory, names):
            source = _source(cache)
            for name in absent:
                _build(cache, source, name)
        if all((directory / name).exists() for name in SERVERS):
            # 1.5 GB that no test needs again.
            shutil.rmtree(cache / "source", ignore_errors=True)
            shutil.rmtree(cache / "go-build", ignore_errors=True)
    return directory


def _absent(directory: Path, names: tuple[str, ...]) -> list[str]:
    """Those of the programs that are not there, or not of this edition."""
    edition = directory / "edition"
    stale = () if edition.exists() and edition.read_text() == EDITION else ("kube-apiserver",)
    return [name for name in names if name in stale or not (directory / name).exists()]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _source(cache: Path) -> Path:
    """The unpacked source package, below the place at which Go looks for it without modules."""
    place = cache / "source"
    gopath = place / "go/src" / _TREE
    if (gopath / "cmd/kubelet").is_dir():
        return gopath
    shutil.rmtree(place, ignore_errors=True)
    gopath.parent.mkdir(parents=True)
    options = _source_lists(place)
    _apt(["update", *options], place, "lists of source packages")
    _apt(["source", "--download-only", *options, "kubernetes"], place, "the source package of kubernetes")
    archive = next(place.glob("kubernetes_*.orig.tar.*"))
    subprocess.run(["tar", "-xf", archive, "-C", place], check=True, timeout=_FETCH_S)
    next(place.glob("kubernetes-*/cmd")).parent.rename(gopath)
    _renew_reflect2(place, gopath)
    (place / "version").write_text(archive.name.split("_")[1].split(".orig")[0].partition("+")[0])
    return gopath


def _renew_reflect2(place: Path, source: Path) -> None:
    """Its copy of a library walks maps as Go before 1.18 laid them out: a server that newer Go compiled crashes on
    objects of custom kinds. Debian's package of the library has the version that knows both (1.0.2)."""
    own = source / "vendor" / _REFLECT
    with unpacked("golang-github-modern-go-reflect2-dev", place / "reflect2") as tree:
        for path in own.glob("*.[gs]*"):
            path.unlink()
        for path in (tree / "usr/share/gocode/src" / _REFLECT).iterdir():
            if path.suffix in (".go", ".s") and not path.name.endswith("_test.go"):
                shutil.copy2(path, own / path.name)


def _source_lists(place: Path) -> list[str]:
    """Options with which apt knows source packages too, and this machine's lists stay as they are."""
    args = [need("apt-get"), "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]
    known = subprocess.run(args, capture_output=True, text=True, check=False).stdout.splitlines()
    sources = place / "sources.list"
    sources.write_text("".join(f"deb-src {' '.join(line.split()[:2])} main\n" for line in sorted(set(known))))
    for directory in ("lists/partial", "archives/partial"):
        (place / directory).mkdir(parents=True)
    settings = {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "-", "Dir::State::lists": place / "lists"}
    return [f"-o{name}={value}" for name, value in (settings | {"Dir::Cache": place}).items()]


def _apt(args: list[str], directory: Path, what: str) -> None:
    # apt would fetch as a user of its own, who may not write here.
    command = [need("apt-get"), "-qq", "-o", "APT::Sandbox::User=root", *args]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=_FETCH_S)
    if done.returncode != 0:
        missing(f"{what} ({done.stderr.strip()})")


def _build(cache: Path, source: Path, name: str) -> None:
    go = _go()
    # Go 1.16 and newer refuse this tree's go.mod with its vendored packages; without modules it builds as it is.
    surroundings = {
        **os.environ,
        "PATH": f"{go.parent}:{SEARCH_PATH}",
        "GO111MODULE": "off",
        "GOFLAGS": "",
        "CGO_ENABLED": "0",
        "GOPATH": str(cache / "source/go"),
        "GOCACHE": str(cache / "go-build"),
    }
    if name == "kube-apiserver" and not (source / _OPENAPI).exists():
        _generate_openapi(source, surroundings)
    version = (cache / "source/version").read_text()
    major, minor = version.split(".")[:2]
    fields = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    packages = ("component-base/version", "client-go/pkg/version")
    marks = [f"-X {_TREE}/vendor/k8s.io/{place}.{key}={value}" for place in packages for key, value in fields.items()]
    scratch = cache / "bin" / f".{name}.new"
    # Without a symbol table, as the released programs are.
    args = ["go", "build", "-trimpath", "-ldflags", f"-s -w {' '.join(marks)}", "-o", str(scratch), f"./cmd/{name}"]
    _run(args, source, surroundings)
    scratch.rename(cache / "bin" / name)
    if name == "kube-apiserver":
        (cache / "bin/edition").write_text(EDITION)


def _generate_openapi(source: Path, surroundings: dict[str, str]) -> None:
    """The one generated file that the source package lacks."""
    generator = source / "openapi-gen"
    _run(["go", "build", "-o", str(generator), "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"], source, surroundings)
    packages = sorted(set(_marked_packages(source)))
    args = [str(generator), "--logtostderr", "-i", ",".join(packages), "-p", f"{_TREE}/pkg/generated/openapi"]
    args += ["-O", "zz_generated.openapi", "-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt"]
    args += ["-r", str(source / "violations.report"), "--output-base", str(Path(surroundings["GOPATH"]) / "src")]
    _run(args, source, surroundings)


def _marked_packages(source: Path) -> Iterator[str]:
    left_out = ("staging/src/k8s.io/code-generator/", "staging/src/k8s.io/sample-apiserver/")
    for top in ("staging/src/k8s.io", "pkg", "cmd", "plugin"):
        for path in (source / top).rglob("*.go"):
            name = path.relative_to(source).as_posix()
            if name.startswith(left_out) or name.endswith("_test.go") or "/_examples/" in name:
                continue
            if "+k8s:openapi-gen=" in path.read_text(errors="replace"):
                package = path.parent.relative_to(source).as_posix()
                staged = package.removeprefix("staging/src/")
                yield f"{_TREE}/{package}" if staged == package else f"{_TREE}/vendor/{staged}"


def _run(args: list[str], directory: Path, surroundings: dict[str, str]) -> None:
    done = subprocess.run(
        args, cwd=directory, env=surroundings, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def _go() -> Path:
    """The newest compiler that still builds this tree: Debian's own choice for its release."""
    found = sorted(Path("/usr/lib").glob("go-1.*/bin/go"))
    return found[0] if found else Path(need("go"))


def _unpack_kubectl(cache: Path, directory: Path) -> None:
    """The client of the same version. Its package collides with other packages of kubectl: only its file is taken."""
    with unpacked("kubernetes-client", cache / "client") as tree:
        shutil.copy2(tree / "usr/bin/kubectl", directory / "kubectl")


@contextmanager
def unpacked(package: str, scratch: Path) -> Iterator[Path]:
    """The files of a package of Debian's that is not installed for it."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        _apt(["download", package], scratch, f"the package {package}")
        subprocess.run([need("dpkg-deb"), "-x", next(scratch.glob("*.deb")), scratch / "tree"], check=True)
        yield scratch / "tree"
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    print(programs(tuple(sys.argv[1:]) or SERVERS))
