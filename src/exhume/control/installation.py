"""Installation of exhume as services of a node: unit files, their links, a user and group, each journaled first.

The journal remains as the list of what was installed, across boots, until it is uninstalled. Files that others changed
since are left in place and reported.
"""

import grp
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Protocol

from exhume.control.files import lock_directory, private_directory, sync_directory, write_new
from exhume.control.journal import Change, Journal, JournalError
from exhume.control.managers import ActionFailed, Kept
from exhume.model.ownership import trusted_users

ACCOUNT = "exhume"
RECORDER, PAGE = "exhume-recorder.service", "exhume-page.service"
UNITS = (RECORDER, PAGE)
UNIT_DIRECTORY = "/etc/systemd/system"
WANTS = f"{UNIT_DIRECTORY}/multi-user.target.wants"
SYSUSERS = "/etc/sysusers.d/exhume.conf"
DROP_INS = f"{UNIT_DIRECTORY}/{RECORDER}.d"
# Drop-in with the addresses that the recorder may talk to in addition to loopback.
ALLOWED_ADDRESSES = f"{DROP_INS}/allow-address.conf"
WORK_DIRECTORY = Path("/var/lib/exhume-install")
STATE_DIRECTORY = Path("/var/lib/exhume")
# The boot id in the journal's first line: an installation outlives every boot.
_BOOT = "installation"
_PATIENCE_S = 60.0
_HASH_LENGTH = 64
# The capabilities that the recorder has instead of full root; docs/commands/install.md explains each.
CAPABILITIES = (
    "CAP_PERFMON",
    "CAP_SYSLOG",
    "CAP_SYS_PTRACE",
    "CAP_DAC_READ_SEARCH",
    "CAP_NET_ADMIN",
    "CAP_SYS_NICE",
    "CAP_IPC_LOCK",
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_KILL",
)
# Before Linux 5.8 there is no CAP_PERFMON (include/uapi/linux/capability.h); CAP_SYS_ADMIN covered its purpose.
_PERFMON, _INSTEAD = 38, "CAP_SYS_ADMIN"


class Units(Protocol):
    """The systemd operations that an installation needs; SystemdControl implements them."""

    def start(self, name: str) -> str: ...

    def stop(self, name: str) -> str: ...

    def daemon_reload(self) -> None: ...

    def reset_failed(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class InstallTools:
    """What is needed to install and uninstall. `resolve` maps a path on the node to its path as seen from here."""

    units: Units
    resolve: Callable[[str], Path] = Path


@dataclass(frozen=True)
class InstalledFile(Change[InstallTools]):
    """A file, with the hash of what was written, and the directories created for it, outermost first."""

    path: str
    sha256: str
    made: tuple[str, ...] = ()
    kind: ClassVar[str] = "file"
    outlives_boot: ClassVar[bool] = True

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "InstalledFile":
        made = cls(str(fields["path"]), str(fields["sha256"]), tuple(map(str, fields["made"])))
        if made.path not in OWN_FILES or len(made.sha256) != _HASH_LENGTH:
            raise ValueError(f"{made.path} is not a file of an installation")
        return made

    def __str__(self) -> str:
        return self.path

    def undo(self, tools: InstallTools) -> None:
        place = tools.resolve(self.path)
        # Left behind by an installation that was killed.
        with suppress(OSError):
            _temporary(place).unlink(missing_ok=True)
        content = _content(place)
        if content is not None and _hash(content) != self.sha256:
            raise Kept(f"{self.path} was changed since it was installed, so it is left; look at it, and remove it")
        if content is not None:
            place.unlink()
            sync_directory(place.parent)
        _remove_directories(self.made, tools)


@dataclass(frozen=True)
class InstalledLink(Change[InstallTools]):
    """A link that enables a unit, and the directories created for it."""

    path: str
    target: str
    made: tuple[str, ...] = ()
    kind: ClassVar[str] = "link"
    outlives_boot: ClassVar[bool] = True

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "InstalledLink":
        made = cls(str(fields["path"]), str(fields["target"]), tuple(map(str, fields["made"])))
        if made.path not in OWN_LINKS:
            raise ValueError(f"{made.path} is not a link of an installation")
        return made

    def __str__(self) -> str:
        return self.path

    def undo(self, tools: InstallTools) -> None:
        place = tools.resolve(self.path)
        if place.is_symlink():
            if os.fspath(place.readlink()) != self.target:
                raise Kept(f"{self.path} leads elsewhere by now, so it is left; look at it, and remove it")
            place.unlink()
            sync_directory(place.parent)
        _remove_directories(self.made, tools)


@dataclass(frozen=True)
class StartedUnit(Change[InstallTools]):
    """A unit that was started, and that starts at boot."""

    name: str
    kind: ClassVar[str] = "started"
    outlives_boot: ClassVar[bool] = True

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "StartedUnit":
        if fields["name"] not in UNITS:
            raise ValueError(f"{fields['name']} is not a unit of exhume")
        return cls(fields["name"])

    def __str__(self) -> str:
        return self.name

    def undo(self, tools: InstallTools) -> None:
        tools.units.stop(self.name)
        tools.units.reset_failed(self.name)


@dataclass(frozen=True)
class Account(Change[InstallTools]):
    """The user and group of the web page. They stay as long as the recordings do, which belong to the group."""

    name: str
    kind: ClassVar[str] = "account"
    outlives_boot: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"the user {self.name}"

    def undo(self, tools: InstallTools) -> None:
        if self.name == ACCOUNT and _account_exists():
            # Debian's userdel removes the group of the same name as well; others leave it.
            _run("userdel", ACCOUNT)
            with suppress(KeyError):
                grp.getgrnam(ACCOUNT)
                _run("groupdel", ACCOUNT)


OWN_FILES = (*(f"{UNIT_DIRECTORY}/{unit}" for unit in UNITS), SYSUSERS, ALLOWED_ADDRESSES)
OWN_LINKS = tuple(f"{WANTS}/{unit}" for unit in UNITS)
KINDS = (InstalledFile, InstalledLink, StartedUnit, Account)
InstallJournal = Journal[InstallTools]


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of an installation: files with their content, links with their target, units to start."""

    files: Mapping[str, bytes]
    links: Mapping[str, str]
    units: Sequence[str]


@dataclass(slots=True)
class Outcome:
    """What was done, one line each, and what was left."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def plan_for(program: str, *, page: bool, last_capability: int, allowed: Sequence[str] = ()) -> Plan:
    """Plan the installation of a program, given as the command that starts it. `last_capability` is the kernel's last
    one (/proc/sys/kernel/cap_last_cap), `allowed` are addresses and networks that the recorder may talk to; without
    any, those of an earlier installation stay."""
    units = UNITS if page else (RECORDER,)
    older = last_capability < _PERFMON
    capabilities = " ".join(_INSTEAD if older and name == "CAP_PERFMON" else name for name in CAPABILITIES)
    files = {SYSUSERS: _template("exhume.sysusers.conf")}
    for unit in units:
        text = _template(unit).replace("@EXHUME@", program).replace("@CAPABILITIES@", capabilities)
        files[f"{UNIT_DIRECTORY}/{unit}"] = text
    if allowed:
        files[ALLOWED_ADDRESSES] = _template("allow-address.conf").replace("@ADDRESSES@", " ".join(allowed))
    links = {f"{WANTS}/{unit}": f"../{unit}" for unit in units}
    return Plan({path: text.encode() for path, text in files.items()}, links, units)


def _template(name: str) -> str:
    return (resources.files("exhume.control") / "units" / name).read_text()


@contextmanager
def hold_installation(directory: Path = WORK_DIRECTORY) -> Iterator[InstallJournal]:
    """Hold the journal of the installation, which only one command may do at a time. Raises JournalError."""
    try:
        private_directory(directory)
        lock = lock_directory(directory)
    except OSError as error:
        raise JournalError(f"{directory} can't be used ({error.strerror}); make it writable for root") from None
    if lock < 0:
        raise JournalError("another exhume install or uninstall is at work; wait until it is done")
    try:
        yield Journal.read(directory, _BOOT, KINDS)
    finally:
        os.close(lock)


def install(plan: Plan, journal: InstallJournal, tools: InstallTools) -> Outcome:
    """Write what differs, then start the units; a unit whose file changed is restarted. Raises ExhumeError."""
    outcome = Outcome()
    for path in plan.files:
        _check_obstacle(path, journal, tools)
    changed = {path for path, content in plan.files.items() if _write_file(path, content, journal, tools, outcome)}
    if not _account_exists():
        journal.add(Account(ACCOUNT))
        _run("systemd-sysusers", os.fspath(tools.resolve(SYSUSERS)))
        outcome.done.append(f"made the user and group {ACCOUNT}")
    for path, target in plan.links.items():
        _link(path, target, journal, tools, outcome)
    if changed:
        tools.units.daemon_reload()
    for unit in plan.units:
        began = StartedUnit(unit)
        if began not in journal.changes:
            journal.add(began)
        elif f"{UNIT_DIRECTORY}/{unit}" in changed or (unit == RECORDER and ALLOWED_ADDRESSES in changed):
            tools.units.stop(unit)
        result = tools.units.start(unit)
        if result != "done":
            raise ActionFailed(f"{unit} could not be started ({result}); see journalctl --unit {unit}")
        outcome.done.append(f"{unit} runs")
    return outcome


def uninstall(journal: InstallJournal, tools: InstallTools, *, purge: bool) -> Outcome:
    """Undo the whole installation. The account stays unless the recordings are removed too. Raises OSError."""
    outcome = Outcome()
    chosen = [change for change in journal.changes if purge or not isinstance(change, Account)]
    failed = journal.undo(tools, chosen)
    outcome.done += [f"removed {change}" for change in chosen if change not in journal.changes]
    outcome.left += [str(each.error) for each in failed]
    if any(isinstance(change, InstalledFile) for change in chosen):
        tools.units.daemon_reload()
    if purge and not failed:
        remove_recordings(tools.resolve(os.fspath(STATE_DIRECTORY)), outcome)
    if not journal.changes:
        journal.remove_if_empty()
        with suppress(OSError):
            journal.directory.rmdir()
    return outcome


def remove_recordings(directory: Path, outcome: Outcome) -> None:
    """Remove the recordings of the service, from a directory that root owns and that is not a symlink."""
    try:
        known = directory.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(known.st_mode) or known.st_uid not in trusted_users():
        outcome.left.append(f"{directory} is not a directory of root's own, so it is left")
        return
    shutil.rmtree(directory)
    outcome.done.append(f"removed {directory} with its recordings")


def _check_obstacle(path: str, journal: InstallJournal, tools: InstallTools) -> None:
    """Raise ActionFailed if something exists at the path that no installation put there."""
    if os.path.lexists(tools.resolve(path)) and not _installed(path, journal):
        raise ActionFailed(f"{path} is there already, and was not written by exhume install; look at it, and remove it")


def _installed(path: str, journal: InstallJournal) -> list[InstalledFile]:
    return [change for change in journal.changes if isinstance(change, InstalledFile) and change.path == path]


def _write_file(path: str, content: bytes, journal: InstallJournal, tools: InstallTools, outcome: Outcome) -> bool:
    """Write a file unless it already has this content; returns whether it was written."""
    place, known = tools.resolve(path), _installed(path, journal)
    present = _content(place)
    if present == content:
        return False
    if present is not None and _hash(present) not in {each.sha256 for each in known}:
        outcome.left.append(f"{path} was changed since it was installed, so it is left; remove it to have it renewed")
        return False
    made = tuple(each for before in known for each in before.made)
    entry = InstalledFile(path, _hash(content), made or _absent_directories(path, tools))
    if entry not in known:
        journal.add(entry)
    _make_directories(path, tools)
    write_new(_temporary(place), content, 0o644)
    _temporary(place).rename(place)
    sync_directory(place.parent)
    # The journal entries of the file it replaced are obsolete.
    journal.strike([each for each in known if each != entry])
    outcome.done.append(f"wrote {path}")
    return True


def _temporary(place: Path) -> Path:
    return place.with_name(f".{place.name}.new")


def _link(path: str, target: str, journal: InstallJournal, tools: InstallTools, outcome: Outcome) -> None:
    place = tools.resolve(path)
    if place.is_symlink() and os.fspath(place.readlink()) in (target, os.fspath(tools.resolve(path).parent / target)):
        return
    if os.path.lexists(place):
        outcome.left.append(f"{path} is there already and leads elsewhere, so it is left")
        return
    link = InstalledLink(path, target, _absent_directories(path, tools))
    if link not in journal.changes:
        journal.add(link)
    _make_directories(path, tools)
    place.symlink_to(target)
    sync_directory(place.parent)
    outcome.done.append(f"enabled {Path(path).name} at boot")


def _absent_directories(path: str, tools: InstallTools) -> tuple[str, ...]:
    absent = [each for each in Path(path).parents if not tools.resolve(os.fspath(each)).is_dir()]
    return tuple(os.fspath(each) for each in reversed(absent))


def _make_directories(path: str, tools: InstallTools) -> None:
    for each in _absent_directories(path, tools):
        place = tools.resolve(each)
        place.mkdir(mode=0o755)
        place.chmod(0o755)
        sync_directory(place.parent)


def _remove_directories(made: Sequence[str], tools: InstallTools) -> None:
    for each in reversed(made):
        # Others may use it by now, in which case it is not empty.
        with suppress(OSError):
            tools.resolve(each).rmdir()


def _content(place: Path) -> bytes | None:
    """Read a regular file; None if it does not exist. Raises Kept for anything else."""
    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            raise Kept(f"{place} is no plain file, so it is left; look at it, and remove it")
        return place.read_bytes()
    except FileNotFoundError:
        return None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _account_exists() -> bool:
    try:
        pwd.getpwnam(ACCOUNT)
        grp.getgrnam(ACCOUNT)
    except KeyError:
        return False
    return True


def _run(*command: str) -> None:
    """Run a system tool. Raises ActionFailed."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise ActionFailed(f"there is no {command[0]} on this node; install it, or make the user by hand") from None
    except subprocess.TimeoutExpired:
        raise ActionFailed(f"{command[0]} did not end within {_PATIENCE_S:.0f} s; try again") from None
    if done.returncode != 0:
        message = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise ActionFailed(f"{' '.join(command)} failed: {message}")
