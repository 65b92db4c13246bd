"""Child processes that take no code from the caller's directory or environment. Standard library only.

`python -m` and `python -c` put the current directory first in sys.path, PYTHON* variables add more, and a relative
entry of PATH is looked up in the current directory. Root may stand in a directory that belongs to another user.
"""

import os
import stat
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

INTERPRETER = sys.executable
# No current directory in sys.path (-P, Python 3.11) and no user site-packages (-s).
_MODULE_FLAGS = ("-P", "-s")
# Programs that need the standard library alone: no environment, no site-packages either.
SCRIPT_FLAGS = ("-I", "-S")
# An interpreter that was found, or finds exhume, by one of these can't do without it: its children have the same.
_KEPT = ("PYTHONHOME", "PYTHONPATH")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def isolated_python(module: str, *args: str | os.PathLike[str]) -> list[str]:
    """The command that runs a module of exhume; start it with `isolated_environment`."""
    return [INTERPRETER, *_MODULE_FLAGS, "-m", module, *(os.fspath(each) for each in args)]


def isolated_script(path: str | os.PathLike[str], *args: str | os.PathLike[str]) -> list[str]:
    """The command that runs a file which needs the standard library alone."""
    return [INTERPRETER, *SCRIPT_FLAGS, os.fspath(path), *(os.fspath(each) for each in args)]


def isolated_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for children: Python variables that could add code are gone, search paths are absolute. For root
    PATH has only directories that no other user can write to."""
    source = os.environ if environment is None else environment
    cleaned = {name: value for name, value in source.items() if not name.startswith("PYTHON")}
    for name in _KEPT:
        if value := _absolute(source.get(name, "")):
            cleaned[name] = value
    cleaned["PYTHONSAFEPATH"] = cleaned["PYTHONNOUSERSITE"] = "1"
    cleaned["PATH"] = safe_path(source.get("PATH", ""))
    return cleaned


def isolate(environment: MutableMapping[str, str] | None = None) -> None:
    """Clean the environment of this process, for whatever it starts: also multiprocessing's children (`python -c`)."""
    target = os.environ if environment is None else environment
    cleaned = isolated_environment(target)
    for name in [name for name in target if name not in cleaned]:
        del target[name]
    target.update(cleaned)


def safe_path(path: str, user: int | None = None) -> str:
    """The entries of a PATH that are safe for a user to run programs from; the usual directories where none is."""
    kept = _absolute(path)
    if (os.geteuid() if user is None else user) == 0:
        kept = os.pathsep.join(entry for entry in kept.split(os.pathsep) if only_root_writes(entry))
    return kept or DEFAULT_PATH


def _absolute(paths: str) -> str:
    return os.pathsep.join(entry for entry in paths.split(os.pathsep) if entry.startswith("/"))


def only_root_writes(directory: str | os.PathLike[str]) -> bool:
    """Whether neither the directory nor one above it can be changed by another user. A group may write: Debian's
    /usr/local is root:staff 2775."""
    try:
        real = Path(directory).resolve(strict=True)
        known = [each.stat() for each in (real, *real.parents)]
    except OSError:
        return False
    return all(
        each.st_uid == 0 and (not each.st_mode & stat.S_IWOTH or (above and each.st_mode & stat.S_ISVTX))
        for above, each in enumerate(known)
    )
