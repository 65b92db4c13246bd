"""A machine with a real systemd as its first process: a container of systemd-nspawn over the kept tree.

Its own files lie on a tmpfs over the tree, mounted where only its own processes see it, and go with the last of them.
All its processes live in a process namespace whose first one, the holder, dies with the test's process, however that
ends. Only empty cgroups may stay then; the next run removes them.
"""

import contextlib
import hashlib
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.parts import need
from tests.system.machines.machine_leftovers import cgroup_hierarchies, own_name, remove_cgroups

# A machine may be held up for long by whatever else runs here; who waits goes on the moment that it has what it wants.
PATIENCE_S = 60.0
HOST_NAME = "machine"
SYSTEM_UNITS = "etc/systemd/system"
JOURNAL = "var/log/journal"
PACKAGED_UNITS = "lib/systemd/system"
_SURROUNDINGS = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
# The holder, in mount and process namespaces of its own; lives until its standard input ends. It first gives up its
# copies of what other tests have mounted: a file system that they unmount would otherwise stay in use, with the zombie
# cgroups that its pages pin, until the container ends.
_HOLD = """
set -e
awk '$5 ~ "^/(var/)?tmp/" { print $5 }' /proc/self/mountinfo | sort -r | while read -r at; do
    umount --lazy "$(printf %b "$at")" 2>/dev/null || true
done
mount -t tmpfs -o mode=755 exhume-machine /run
mkdir -p /run/dbus /run/machine/upper /run/machine/work /run/machine/root
mount -t overlay -o lowerdir="$1",upperdir=/run/machine/upper,workdir=/run/machine/work exhume-machine /run/machine/root
echo ready
exec cat
"""
_JOIN_AND_BOOT = """
set -e
holder=$1; shift
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift
exec nsenter --mount --pid --target "$holder" -- "$@"
"""


class MachineError(Exception):
    """A machine of the tests did not do what it had to."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory, link or device: its type and mode, owner, and what it holds. `modified` is for files only: a
    directory in which a file was made and removed again is as it was."""

    mode: int
    user: int
    group: int
    content: str
    modified: int | None


def disk_digest(disk: Path, changes: Path, tree: Path) -> dict[str, Entry]:
    """Everything that differs from the tree that the machine was made of, the journal aside. What is only copied but
    equal does not count; what was removed does."""
    differs = {}
    for directory, names, files in os.walk(changes):
        for name in (*names, *files):
            path = os.path.relpath(os.path.join(directory, name), changes)  # noqa: PTH118
            if path == JOURNAL or path.startswith(f"{JOURNAL}/"):
                continue
            now, before = _entry(disk / path), _entry(tree / path)
            if now != before:
                differs[path] = now
    return differs


GONE = Entry(0, 0, 0, "gone", None)


def _entry(path: Path) -> Entry:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return GONE
    content, modified = "", None
    if stat.S_ISREG(status.st_mode):
        content, modified = hashlib.sha256(path.read_bytes()).hexdigest(), status.st_mtime_ns
    elif stat.S_ISLNK(status.st_mode):
        content = os.readlink(path)  # noqa: PTH115
    elif stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode):
        content = str(status.st_rdev)
    return Entry(status.st_mode, status.st_uid, status.st_gid, content, modified)


class Machine:
    """Use it as a context. `disk` is its root file system, also while it is off; `root` is the running machine's whole
    tree, with its /proc, /sys and /run, as a container sees its host's root that is mounted in it. `mounts` are more
    options for systemd-nspawn."""

    def __init__(self, tree: Path, mounts: Sequence[str] = ()) -> None:
        self.tree = tree
        self._mounts = mounts
        self.name = own_name()
        self._holder: subprocess.Popen[str] | None = None
        self._nspawn: subprocess.Popen[bytes] | None = None
        # Not a pipe: nobody would read it, and a full one stops the machine.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._cgroups = [place / self.name for place in cgroup_hierarchies()]
        self._under_way: list[subprocess.Popen[bytes]] = []
        self.leader: int | None = None

    def __enter__(self) -> Self:
        apart = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen(
            [need("setpriv"), "--pdeathsig", "KILL", *apart, "sh", "-c", _HOLD, "hold", os.fspath(self.tree)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout and self._holder.stderr
        if self._holder.stdout.readline() != "ready\n":
            said = self._holder.stderr.read()
            self.close()
            raise MachineError(f"no disk for a machine: {said}")
        self.write("/etc/hostname", f"{HOST_NAME}\n")
        self._leave_out_generators()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.cut_power()
        if self._holder is not None:
            self._holder.communicate()
            self._holder = None
        self._log.close()

    def _leave_out_generators(self) -> None:
        """Of the programs that make up units at boot and at each reload only the one that masks units: all others look
        for disks, consoles and scripts that are not there, and take two thirds of the time of a reload."""
        masks = self.disk / "etc/systemd/system-generators"
        masks.mkdir(parents=True)
        for program in (self.tree / "lib/systemd/system-generators").iterdir():
            if program.name != "systemd-debug-generator":
                (masks / program.name).symlink_to("/dev/null")

    @property
    def disk(self) -> Path:
        assert self._holder is not None
        return Path(f"/proc/{self._holder.pid}/root/run/machine/root")

    @property
    def changes(self) -> Path:
        """What differs from the tree: the upper directory of the overlay."""
        return self.disk.parent / "upper"

    @property
    def root(self) -> Path:
        assert self.leader is not None, "the machine is off"
        return Path(f"/proc/{self.leader}/root")

    def boot(self) -> None:
        """Come up, until everything that is started at boot was started or failed."""
        assert self._holder is not None and self._nspawn is None
        for cgroup in self._cgroups:
            cgroup.mkdir(exist_ok=True)
        (holder,) = _children(self._holder.pid)
        joining = ["sh", "-c", _JOIN_AND_BOOT, "boot", str(holder), *map(os.fspath, self._cgroups), "--"]
        nspawn = [need("systemd-nspawn"), "--quiet", "--boot", "--directory=/run/machine/root", "--bind=/run/dbus"]
        apart = ["--register=no", "--keep-unit", "--private-network", "--link-journal=no"]
        unlike_here = ["--resolv-conf=off", "--timezone=off", f"--machine={self.name}", f"--hostname={HOST_NAME}"]
        # What the distribution does at its times of the day writes to the disk, whatever a test is at by then.
        silent = [f"systemd.mask={timer.name}" for timer in sorted((self.tree / PACKAGED_UNITS).glob("*.timer"))]
        self._nspawn = subprocess.Popen(
            [*joining, *nspawn, *apart, *unlike_here, *self._mounts, *silent],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            # A Ctrl-C is for the test; it ends the machine itself.
            start_new_session=True,
        )
        self._wait_for_boot()

    def reboot(self) -> None:
        """As `systemctl reboot` does it: services are stopped in order, the disk stays."""
        # What becomes of the order shows by what follows: who gave it may be killed with all else before it is back.
        ordered = self.ask("systemctl", "--no-block", "reboot")
        # systemd-nspawn ends here, with a code of its own for "start me again".
        self.wait_until(
            f"the machine goes down ({ordered.stderr.strip()})",
            lambda: self._nspawn is None or self._nspawn.poll() is not None,
            2 * PATIENCE_S,
        )
        self.cut_power()
        self.boot()

    def cut_power(self) -> None:
        """Every process dies at once; the disk stays."""
        if self._nspawn is None:
            return
        # systemd-nspawn itself sees to the end of its first process, and ends. Then that number may be another's.
        first = _children(self._nspawn.pid) if self.leader is None else [self.leader]
        for process in first if self._nspawn.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._nspawn.wait(PATIENCE_S)
        leader, self.leader, self._nspawn = self.leader, None, None
        self.wait_until("the machine is off", lambda: leader is None or not _lives(leader))
        while self._under_way:
            self._under_way.pop().wait(PATIENCE_S)
        # The kernel may still be busy with the last of its processes.
        self.wait_until("its cgroups are gone", lambda: not any(map(remove_cgroups, self._cgroups)))

    def run(self, *words: str, check: bool = True, timeout: float = PATIENCE_S) -> str:
        """A command inside the machine, as root; what it said."""
        done = self.ask(*words, timeout=timeout)
        if check and done.returncode != 0:
            raise MachineError(f"{words} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def ask(self, *words: str, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """The same, without a word about its exit code."""
        return subprocess.run(
            self._inside(*words),
            env=_SURROUNDINGS,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )

    def later(self, command: str, after_s: float) -> None:
        """Have a shell inside do this, so many seconds from now at the earliest."""
        words = self._inside("sh", "-c", f"sleep {after_s}; {command}")
        self._under_way.append(subprocess.Popen(words, env=_SURROUNDINGS, stdin=subprocess.DEVNULL))

    def _inside(self, *words: str) -> list[str]:
        """How a command is called inside, as root."""
        assert self.leader is not None, "the machine is off"
        rooms = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]
        return [need("nsenter"), "--target", str(self.leader), *rooms, "--", *words]

    def beside(self, *words: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """A command as in a container on the machine's node: with this machine's files, but the node's bus is mounted
        at the usual place, and nothing else of the node."""
        assert self._holder is not None
        (holder,) = _children(self._holder.pid)
        return subprocess.run(
            [need("nsenter"), "--target", str(holder), "--mount", "--pid", "--", *words],
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=2 * PATIENCE_S,
            check=False,
        )

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """What `systemctl show` says of a unit."""
        reported = self.run("systemctl", "show", "--no-pager", f"--property={','.join(properties)}", "--", unit)
        return dict(line.split("=", 1) for line in reported.splitlines() if "=" in line)

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> Path:
        """A file on its disk, whether it runs or not."""
        place = self.disk / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        place.chmod(mode)
        return place

    def write_unit(self, name: str, text: str, *, wanted_by: str | None = None, below: str = SYSTEM_UNITS) -> Path:
        """A unit of an administrator's; systemd knows of it after a reload. `wanted_by` enables it for that target."""
        place = self.write(f"{below}/{name}", text)
        if wanted_by is not None:
            self.enable(name, wanted_by, below=below)
        return place

    def enable(self, name: str, wanted_by: str, *, below: str = SYSTEM_UNITS) -> Path:
        link = self.disk / SYSTEM_UNITS / f"{wanted_by}.wants" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"/{below}/{name}")
        return link

    def reload(self) -> None:
        self.run("systemctl", "daemon-reload")

    def start(self, name: str, *, wait: bool = True) -> subprocess.CompletedProcess[str]:
        return self.ask("systemctl", "start", *([] if wait else ["--no-block"]), "--", name)

    def state(self, name: str) -> str:
        return self.show(name, "ActiveState")["ActiveState"]

    def digest(self) -> dict[str, Entry]:
        """What is on its disk, the journal aside, as far as it differs from the tree."""
        return disk_digest(self.disk, self.changes, self.tree)

    def wait_until(self, what: str, happened: Callable[[], object], patience: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience
        while not happened():
            if time.monotonic() > deadline:
                raise MachineError(f"did not happen within {patience:.0f} s: {what}; {self._console()}")
            time.sleep(0.05)

    def wait_for_restarts(self, name: str, count: int) -> None:
        """Until systemd has started it again so many times, and the journal tells of them."""
        self.wait_until(
            f"{name} restarts", lambda: int(self.show(name, "NRestarts").get("NRestarts", "0")) >= count, 2 * PATIENCE_S
        )
        self.write_journal()

    def wait_for_failure(self, name: str) -> None:
        """Until it has failed, and the journal tells of it. That one was started says nothing of its end yet."""
        self.wait_until(f"{name} fails", lambda: self.state(name) == "failed")
        self.write_journal()

    def write_journal(self) -> None:
        """What was said so far is in the journal then: journald takes it in whenever it gets to it."""
        self.run("journalctl", "--sync")

    def _wait_for_boot(self) -> None:
        self.wait_until("the first process", self._find_leader)
        settled = ("running", "degraded")
        self.wait_until("systemd is up", lambda: self._asked_whether_up() in settled, 2 * PATIENCE_S)
        self.write_journal()

    def _asked_whether_up(self) -> str:
        """Waits until it is; fails at once while nobody answers yet."""
        return self.ask("systemctl", "is-system-running", "--wait", timeout=2 * PATIENCE_S).stdout.strip()

    def _find_leader(self) -> bool:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise MachineError(f"systemd-nspawn ended with {self._nspawn.returncode}: {self._console()}")
        # nsenter, systemd-nspawn, the machine's first process.
        for nspawn in _children(self._nspawn.pid):
            for child in _children(nspawn):
                if _pids_inside(child)[2:] == [1] and _called(child) == "systemd":
                    self.leader = child
                    return True
        return False

    def _console(self) -> str:
        """The end of what it said on its console."""
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _children(pid: int) -> Sequence[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _called(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip()
    return ""


def _pids_inside(pid: int) -> list[int]:
    """Its process id, from the outermost namespace to its own."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return [int(word) for word in line.split()[1:]]
    return []
