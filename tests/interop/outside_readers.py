"""Readers of other projects, fetched once into the cache of the tests: packages of npm and PyPI, pinned by hash, and
environments with a version of a package."""

import base64
import fcntl
import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.parts import missing, need

# Of the registry: speedscope itself, and the command line of the Firefox Profiler, by its authors.
SPEEDSCOPE = (
    "speedscope@1.25.0",
    "cpf9HWTZf1ijLXBJrk87Ve/54tnYx6rlf0gUThvn3ook6h63hLXVOQiMf44PT+XoV503cPfvfiT5gP5vojp6Ag==",
)
FIREFOX_PROFILER = (
    "@firefox-devtools/profiler-cli@0.10.0",
    "f9fqdHh7B6ddQIYrwrEs4FE5D8BMOsXSorYF4NRFfwPaGikVBlhorBxHT7zrb6WMgJgKQYHC9kazkRjbItLx8Q==",
)
# Google's own agent has the compiled schema of pprof (googlecloudprofiler/profile_pb2.py); it is not installed.
GOOGLE_PROFILER = (
    "google-cloud-profiler==4.1.0",
    "hX+02EuAcWqTzw9xcBrmgq23Np/th56Irzf8EvFHgeH0P+yyFA3RCDEG+JaUH8U3y0LdJeue9mieaf2PKzeJBQ==",
)


def _cache() -> Path:
    chosen = os.environ.get("EXHUME_TEST_CACHE")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "exhume"
    (base / "readers").mkdir(parents=True, exist_ok=True)
    return base / "readers"


def npm_package(package: tuple[str, str]) -> Path:
    """The unpacked package."""
    need("node")
    return _unpacked(package, [need("npm"), "pack", "--silent", package[0]], "*.tgz") / "package"


def google_profiler() -> Path:
    """The sources of Google's agent."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", GOOGLE_PROFILER[0]]
    return _unpacked(GOOGLE_PROFILER, command, "*.tar.gz") / "google-cloud-profiler-4.1.0"


def environment(package: str) -> Path:
    """The Python of an environment that has a package of PyPI; skips where it can't be installed."""
    place = _cache() / hashlib.sha256(package.encode()).hexdigest()[:16]
    place.mkdir(exist_ok=True)
    python = place / "venv/bin/python"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", place / "venv"], check=True)
            command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                missing(f"{package} from a package index ({done.stderr.strip()[-200:]})")
            (place / "done").touch()
    return python


def _unpacked(package: tuple[str, str], command: list[str], pattern: str) -> Path:
    """The directory that the package was unpacked into; skips where it can't be fetched."""
    name, expected = package
    place = _cache() / hashlib.sha256(name.encode()).hexdigest()[:16]
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        archive = next(place.glob(pattern), None)
        if archive is None:
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=120)
            archive = next(place.glob(pattern), None)
            if archive is None:
                missing(f"{name} from its registry ({done.stderr.strip()[-200:]})")
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        assert digest == expected, f"{archive.name} is not what was reviewed"
        if not (place / "done").exists():
            with tarfile.open(archive) as packed:
                packed.extractall(place, filter="data")
            (place / "done").touch()
    return place
