"""The tree that every machine of the tests boots: a small Debian with systemd and D-Bus, made once and kept outside of
the repository."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.parts import missing, need

from exhume.procfs.mountinfo import read_mounts

PACKAGES = ("systemd", "systemd-sysv", "dbus")
# Changes with what is done to the tree after debootstrap, so that an old one is not taken for a new one.
EDITION = 2
PATIENCE_S = 280


def cache_directory() -> Path:
    """Where the tree is kept between runs: EXHUME_TEST_CACHE, or else the user's cache."""
    base = os.environ.get("EXHUME_TEST_CACHE")
    if not base:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "exhume"
    directory = Path(base) / "machines"
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()


def machine_tree() -> Path:
    """The tree, made now if there is none yet. Nobody may write to it: machines lay their own files over it."""
    cache = cache_directory()
    suite = _suite()
    kept = cache / f"{suite}-{EDITION}"
    with _locked(cache / "lock"):
        if not kept.is_dir():
            for half_made in cache.glob("making-*"):
                _unmount_below(half_made)
                shutil.rmtree(half_made)
            scratch = cache / f"making-{os.getpid()}"
            try:
                _debootstrap(suite, scratch)
                _finish(scratch)
                scratch.rename(kept)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return kept


def _unmount_below(directory: Path) -> None:
    """What debootstrap mounts in its tree stays mounted when it is killed."""
    points = [Path(mount.point) for mount in read_mounts(Path("/proc/self/mountinfo"))]
    for point in sorted((point for point in points if directory in point.parents), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _suite() -> str:
    """The release of this machine, so that the packages come from where its own do."""
    facts = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    if "VERSION_CODENAME" not in facts:
        missing("a Debian or Ubuntu release that debootstrap knows")
    return facts["VERSION_CODENAME"].strip('"')


def _debootstrap(suite: str, into: Path) -> None:
    words = [need("debootstrap"), "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, os.fspath(into)]
    surroundings = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C"}
    done = subprocess.run(
        [*words, *_mirror(suite)],
        env=surroundings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        missing(f"a package source that debootstrap can use ({done.stdout.strip().splitlines()[-1:]})")


def _mirror(suite: str) -> list[str]:
    """Where this machine's apt has its packages from; nothing: debootstrap's own choice."""
    words = [need("apt-get"), "indextargets", "--format", "$(SITE)", "Created-By: Packages", f"Codename: {suite}"]
    reported = subprocess.run(words, capture_output=True, text=True, check=False)
    return reported.stdout.split()[:1]


def _finish(tree: Path) -> None:
    """As an image is before its first boot: no identity and no name; and a journal that lasts."""
    identity = tree / "etc/machine-id"
    identity.chmod(0o644)
    # Empty rather than absent: absent asks systemd to decide again what is enabled.
    identity.write_text("")
    (tree / "var/lib/dbus/machine-id").unlink(missing_ok=True)
    (tree / "etc/hostname").unlink(missing_ok=True)
    (tree / "var/log/journal").mkdir(exist_ok=True)
    # Nobody sits before it, and logins are written down on the disk.
    (tree / "etc/systemd/system/console-getty.service").symlink_to("/dev/null")
    shutil.rmtree(tree / "var/cache/apt")
    shutil.rmtree(tree / "var/lib/apt/lists")
    for place in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial"):
        (tree / place).mkdir(parents=True)
