"""What must not be cut off: our own processes, the way in which we came, and runtimes that have containers to look
after. Told by what the kernel shows, not by names."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exhume.procfs.host import Host

_SHIM = "containerd-shim"
_LISTENS = "0A"
_MOST_ANCESTORS = 64
# Where people come in, whatever the program is called that lets them.
SSH_PORT = 22
_INIT_SCOPE = "/init.scope"
_GONE = " (deleted)"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Processes and cgroups, as the node numbers and names them. `ours` is this process with its ancestors; `way_in`
    are the cgroups of what listens where our SSH session came in, `shims` those with a live containerd-shim, `doors`
    those of what listens where SSH usually does; `programs` are cgroups with the programs that run in them, `inside`
    those with programs in process namespaces of their own, as containers have."""

    ours: frozenset[int] = frozenset()
    our_cgroups: frozenset[str] = frozenset()
    ssh_port: int | None = None
    way_in: frozenset[str] = frozenset()
    shims: frozenset[str] = frozenset()
    doors: frozenset[str] = frozenset()
    programs: frozenset[tuple[str, str]] = frozenset()
    inside: frozenset[tuple[str, str]] = frozenset()


def look_around(host: Host) -> Surroundings:
    """What can be told of a node by its /proc; nothing of ours where we are no process of that node."""
    proc = host.proc
    ours = list(_ancestors(proc))
    port = next((found for pid in ours if (found := _ssh_port(proc / str(pid))) is not None), None)
    listening = _listening(proc / "net", port) if port is not None else set()
    # The node's own sockets, whichever namespace we look from.
    usual = _listening(proc / "1/net", SSH_PORT)
    above, space = _above(proc), _link(proc / "1/ns/pid")
    way_in, shims, doors = set(), set(), set()
    programs: set[tuple[str, str]] = set()
    inside: set[tuple[str, str]] = set()
    for process in _processes(proc):
        cgroups = _cgroups(process, above)
        if _comm(process).startswith(_SHIM):
            shims |= cgroups
        held = _held(process, listening | usual) if listening or usual else set()
        way_in |= cgroups if held & listening else set()
        doors |= cgroups if held & usual else set()
        where = programs if _link(process / "ns/pid") == space else inside
        where |= {(cgroup, program) for cgroup in cgroups for program in _programs(process)}
    our_cgroups = set().union(*(_cgroups(proc / str(pid), above) for pid in ours if pid != 1))
    return Surroundings(
        frozenset(ours) - {1},
        frozenset(our_cgroups),
        port,
        frozenset(way_in),
        frozenset(shims),
        frozenset(doors),
        frozenset(programs),
        frozenset(inside),
    )


def is_within(cgroup: str, whole: str | None) -> bool:
    """Whether a cgroup is another one, or below it. Everything is below the root, which tells nothing."""
    return bool(whole) and whole != "/" and (cgroup == whole or cgroup.startswith(f"{whole}/"))


def _ancestors(proc: Path) -> Iterator[int]:
    """This process and those that it came from, by their numbers in the node's own list."""
    try:
        # The kernel answers with our number in that list, or not at all where we are not in it.
        pid = int((proc / "self").readlink().name)
    except (OSError, ValueError):
        return
    for _ in range(_MOST_ANCESTORS):
        yield pid
        parent = next((line for line in _lines(proc / str(pid) / "status") if line.startswith("PPid:")), "")
        number = parent.partition(":")[2].strip()
        if not number.isdigit() or int(number) == 0:
            return
        pid = int(number)


def _ssh_port(process: Path) -> int | None:
    """The port that the process's SSH session came in by. sudo hides it from us, but not from those above us."""
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    for each in environment:
        name, _, value = each.partition(b"=")
        words = value.split()
        if name == b"SSH_CONNECTION" and len(words) == 4 and words[3].isdigit():
            return int(words[3])
    return None


def _listening(net: Path, port: int) -> set[str]:
    """Sockets that listen at a port, as links of descriptors name them."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in _lines(net / name)[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{words[9]}]")
    return found


def _held(process: Path, sockets: set[str]) -> set[str]:
    """Those of some sockets that a process has open."""
    # init holds the sockets of all that it activates.
    if process.name == "1":
        return set()
    try:
        return {target for each in (process / "fd").iterdir() if (target := _link(each)) in sockets}
    except OSError:
        return set()


def _processes(proc: Path) -> list[Path]:
    try:
        return [path for path in proc.iterdir() if path.name.isdigit()]
    except OSError:
        return []


def _comm(process: Path) -> str:
    return next(iter(_lines(process / "comm")), "")


def _programs(process: Path) -> set[str]:
    """What a process runs, by its file and by what it calls itself: a script has only the latter."""
    return {_link(process / "exe").removesuffix(_GONE).rpartition("/")[2], _comm(process)} - {""}


def _above(proc: Path) -> str:
    """What stands before systemd's own paths where it runs in a container, and the kernel tells us the whole."""
    first = (line.split(":", 2)[-1] for line in _lines(proc / "1/cgroup"))
    return next((path.removesuffix(_INIT_SCOPE) for path in first if path.endswith(_INIT_SCOPE)), "")


def _cgroups(process: Path, above: str) -> set[str]:
    paths = (line.split(":", 2)[-1] for line in _lines(process / "cgroup"))
    return {path.removeprefix(above) if path.startswith(f"{above}/") else path for path in paths if path != "/"}


def _link(path: Path) -> str:
    try:
        return os.fspath(path.readlink())
    except OSError:
        return ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
