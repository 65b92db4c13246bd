"""Child processes that load no code from the caller's directory or environment. Standard library only.

`python -m` and `python -c` put the current directory first in sys.path, PYTHON* variables add more entries, and
relative entries of PATH are looked up in the current directory. Root's current directory may belong to another user.
"""

import os
import stat
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

INTERPRETER = sys.executable
# No current directory in sys.path (-P, Python 3.11) and no user site-packages (-s).
_MODULE_FLAGS = ("-P", "-s")
# For programs that only need the standard library: ignore the environment and site-packages as well.
SCRIPT_FLAGS = ("-I", "-S")
# An interpreter that depends on one of these to start or to find exhume passes it on to its children.
_KEPT = ("PYTHONHOME", "PYTHONPATH")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def isolated_python(module: str, *args: str | os.PathLike[str]) -> list[str]:
    """The command that runs a module of exhume; run it with `isolated_environment`."""
    return [INTERPRETER, *_MODULE_FLAGS, "-m", module, *(os.fspath(each) for each in args)]


def isolated_script(path: str | os.PathLike[str], *args: str | os.PathLike[str]) -> list[str]:
    """The command that runs a script which only needs the standard library."""
    return [INTERPRETER, *SCRIPT_FLAGS, os.fspath(path), *(os.fspath(each) for each in args)]


def isolated_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for children: Python variables that could add code are removed, search paths are absolute. For
    root, PATH only has directories that no other user can write to."""
    source = os.environ if environment is None else environment
    cleaned = {name: value for name, value in source.items() if not name.startswith("PYTHON")}
    for name in _KEPT:
        if value := _absolute(source.get(name, "")):
            cleaned[name] = value
    cleaned["PYTHONSAFEPATH"] = cleaned["PYTHONNOUSERSITE"] = "1"
    cleaned["PATH"] = safe_path(source.get("PATH", ""))
    return cleaned


def isolate(environment: MutableMapping[str, str] | None = None) -> None:
    """Clean this process's environment, for all of its children, including multiprocessing's (`python -c`)."""
    target = os.environ if environment is None else environment
    cleaned = isolated_environment(target)
    for name in [name for name in target if name not in cleaned]:
        del target[name]
    target.update(cleaned)


def safe_path(path: str, user: int | None = None) -> str:
    """The entries of a PATH from which a user can safely run programs; the default directories if there are none."""
    kept = _absolute(path)
    if (os.geteuid() if user is None else user) == 0:
        kept = os.pathsep.join(entry for entry in kept.split(os.pathsep) if only_root_writes(entry))
    return kept or DEFAULT_PATH


def _absolute(paths: str) -> str:
    return os.pathsep.join(entry for entry in paths.split(os.pathsep) if entry.startswith("/"))


def only_root_writes(directory: str | os.PathLike[str]) -> bool:
    """Whether no other user can change the directory or one of its parents. Group write access is accepted: Debian's
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
