"""The inventory of the node: at the start, after changes, and in full once an hour.

A child process reads the sections, since systemd or a container runtime may take long to answer; a tick only starts it,
and takes its output after it has exited. Every five minutes the inputs of all sections are checked for changes, one
section per tick. After the first reading all of this together stays below a share of a core, by waiting.
"""

import contextlib
import os
import resource
import subprocess
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from exhume.collect.inventory.fingerprints import READ_SECTIONS, fingerprint
from exhume.collect.node_root import NodeRoot
from exhume.collect.source import NOTHING, TickRows, table_rows
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.isolation import isolated_environment, isolated_python
from exhume.model.process import background
from exhume.model.tables import Losses
from exhume.procfs.host import Host
from exhume.procfs.mountinfo import read_mounts

# Recordings of a few seconds, as a checkup makes, do without.
FIRST_AFTER_S = 10
_LOOK_EVERY_S = 300
# Recorded again, so that the newest part of a recording has all of it.
_AGAIN_NS = 3600 * NANOS
# Units and containers have states that no file shows, so they are read at least this often.
_STATES = ("units", "boot", "containers")
# On a node without spare CPU time it may take minutes.
_LONGEST_NS = 1800 * NANOS
# As a fraction of a core, for checks and children after the first one; some of it may be spent at once.
SHARE, _AT_ONCE_S = 0.0002, 1.0
_MOST_LINE, _MOST_OUTPUT = 1 << 20, 64 << 20
# How many bytes of sections are recorded in one tick; the rest follows in the next ticks. Rows are in memory several
# times until they are written.
_BYTES_A_TICK = 512 << 10


@dataclass(frozen=True, slots=True)
class _Known:
    """A section as last recorded. Its content is `size` bytes of JSON, kept as the child compressed it."""

    digest: str
    missing: str
    size: int
    content: bytes


class InventorySource:
    """Rows of the inventory table, a few per hour."""

    name = "inventory"

    def __init__(self, host: Host) -> None:
        if not (host.proc / "sys/kernel/osrelease").exists():
            raise SourceUnavailable(self.name, f"{host.proc}/sys can't be seen", "mount procfs at /proc")
        self._root = node_root(host)
        self._began: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output = -1
        self._deadline = 0
        self._known: dict[str, _Known] = {}
        self._prints: dict[str, int] = {}
        self._again = 0
        self._hours = 0
        self._reading: tuple[str, ...] = ()
        self._changed: set[str] = set()
        # Sections to record, in order.
        self._due: list[str] = []
        self._spent_s = 0.0
        self._losses: list[Losses] = []

    def read(self, tick: Tick) -> TickRows:
        if self._began is None:
            self._began = tick.end
        second = (tick.end - self._began) // NANOS
        if self._process is not None:
            self._take(tick)
        if self._due:
            return self._rows(tick)
        if self._process is not None or second < FIRST_AFTER_S:
            return NOTHING
        if not self._again:
            self._again = tick.end + _AGAIN_NS
            self._prints = {name: fingerprint(self._root, name) for name in READ_SECTIONS}
            self._start(tick, READ_SECTIONS)
            return NOTHING
        if tick.end >= self._again:
            self._again += _AGAIN_NS
            self._hours += 1
            # Not every input has a fingerprint.
            self._changed.update(READ_SECTIONS if self._hours % 24 == 0 else _STATES)
            self._due = list(self._known)
            return self._rows(tick)
        self._look(second % _LOOK_EVERY_S)
        # Only at the end of a round, so that inputs that changed together are read together.
        if self._changed and second % _LOOK_EVERY_S == len(READ_SECTIONS) and self._may_spend(second):
            changed, self._changed = self._changed, set()
            # The boot section is derived from the units.
            if changed & set(_STATES[:2]):
                changed.update(_STATES[:2])
            self._start(tick, [name for name in READ_SECTIONS if name in changed])
        return NOTHING

    def take_losses(self) -> list[Losses]:
        lost, self._losses = self._losses, []
        return lost

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            os.close(self._output)

    def _look(self, place: int) -> None:
        """Check whether the inputs of one section changed."""
        if place >= len(READ_SECTIONS):
            return
        began = time.thread_time()
        name = READ_SECTIONS[place]
        now = fingerprint(self._root, name)
        if now != self._prints.get(name):
            self._prints[name] = now
            self._changed.add(name)
        self._spent_s += time.thread_time() - began

    def _may_spend(self, second: int) -> bool:
        return self._spent_s <= _AT_ONCE_S + SHARE * second

    def _start(self, tick: Tick, names: Sequence[str]) -> None:
        self._reading = tuple(names)
        # A memfd: a pipe would have to be drained while the child runs.
        self._output = os.memfd_create("exhume-inventory", os.MFD_CLOEXEC)
        command = isolated_python("exhume.collect.inventory.child", str(os.getpid()), self._root.path, *names)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env=isolated_environment(),
            )
        except OSError as error:
            os.close(self._output)
            self._changed.update(names)
            self._lose(tick, f"the process that reads it can't be started: {error.strerror}")
            return
        background(self._process.pid)
        self._deadline = tick.end + _LONGEST_NS

    def _take(self, tick: Tick) -> None:
        """Take the child's output after it has exited."""
        assert self._process is not None
        if tick.end >= self._deadline:
            self._process.kill()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = self._process.poll()
        if code is None:
            return
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if self._known:
            self._spent_s += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self._process = None
        began = time.thread_time()
        with contextlib.closing(os.fdopen(self._output, "rb")) as file:
            file.seek(0)
            self._due += [name for name in iter(lambda: self._learn(file), None) if name not in ("", *self._due)]
        if code != 0:
            self._changed.update(self._reading)
            self._lose(tick, f"the process that reads it ended with code {code}; retried in {_LOOK_EVERY_S} s")
        self._spent_s += time.thread_time() - began

    def _learn(self, file: BinaryIO) -> str | None:
        """Parse one section; its name if it changed, empty if not. None at the end, also when the output ends in the
        middle of a section."""
        parts = file.readline(_MOST_LINE).decode("utf-8", "replace").rstrip("\n").split("\t")
        if len(parts) != 5 or parts[0] not in READ_SECTIONS or not all(each.isdecimal() for each in parts[3:]):
            return None
        name, digest, missing = parts[:3]
        size, length = int(parts[3]), int(parts[4])
        content = file.read(min(length, _MOST_OUTPUT))
        if len(content) != length or size > _MOST_OUTPUT:
            return None
        before = self._known.get(name)
        if before is not None and before.digest == digest:
            return ""
        self._known[name] = _Known(digest, missing, size, content)
        return name

    def _rows(self, tick: Tick) -> TickRows:
        """The next sections, as many as a tick may record."""
        rows: list[tuple[int, str, str | None, str | None]] = []
        size = 0
        while self._due and (not rows or size + self._known[self._due[0]].size <= _BYTES_A_TICK):
            name = self._due.pop(0)
            each = self._known[name]
            size += each.size
            rows.append((tick.start, name, _unpacked(each) or None, each.missing or None))
        return table_rows("inventory", ("time", "section", "content", "missing"), rows)

    def _lose(self, tick: Tick, text: str) -> None:
        self._losses.append(Losses(tick.start, self.name, "inventory-failed", 1, text))


def _unpacked(section: _Known) -> str:
    return zlib.decompressobj().decompress(section.content, section.size).decode() if section.size else ""


def node_root(host: Host) -> NodeRoot:
    """The root of the node as init sees it: our own, or in a pod with the node's processes, the node's. Raises
    SourceUnavailable when ours is a different root and init's is inaccessible."""
    if host != Host():
        return NodeRoot(host.proc.parent)
    # Any process may read mount tables; following the link takes CAP_SYS_PTRACE (fs/proc/base.c, proc_pid_get_link).
    theirs, ours = (_root_mount(host.proc / name / "mountinfo") for name in ("1", "self"))
    if theirs in (None, ours):
        return NodeRoot()
    try:
        Path("/proc/1/root/proc").stat()
    except OSError:
        remedy = "add CAP_SYS_PTRACE, so that /proc/1/root can be followed"
        reason = "the node's root can't be seen from this container"
        raise SourceUnavailable(InventorySource.name, reason, remedy) from None
    return NodeRoot(Path("/proc/1/root"))


def _root_mount(table: Path) -> tuple[tuple[int, int], str] | None:
    """The filesystem at / in a mount table, and the part of it that is mounted."""
    mounts = [mount for mount in read_mounts(table) if mount.point == "/"]
    return (mounts[-1].device, mounts[-1].root) if mounts else None
