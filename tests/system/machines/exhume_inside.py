"""The program inside a machine, as on any node: this machine's Python and the repository's source, mounted there."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.system.machines.exhume_outside import PROGRAM, SOURCE, Said
from tests.system.machines.nspawn_machine import Machine

# Where the files of this machine are in the other.
THERE = "/outside"


def mounts() -> list[str]:
    """What a machine has to have mounted to run the program, as options of systemd-nspawn."""
    return [f"--bind-ro={place}:{THERE}{place}" for place in _places()]


def command(*words: str) -> list[str]:
    """The program with these words, as it is called in there."""
    python = os.path.realpath(sys.executable)
    # Its own loader and libraries: those of the machine may be of another age.
    loading = [f"{THERE}{_loader(python)}", "--library-path", ":".join(f"{THERE}{place}" for place in _libraries())]
    imports = [SOURCE, *(sysconfig.get_path(name) for name in ("purelib", "platlib"))]
    paths = ":".join(f"{THERE}{Path(path).resolve()}" for path in dict.fromkeys(imports))
    home = f"{THERE}{Path(sys.base_prefix).resolve()}"
    return ["env", f"PYTHONHOME={home}", f"PYTHONPATH={paths}", *loading, f"{THERE}{python}", "-c", PROGRAM, *words]


def exhume_inside(machine: Machine, *words: str) -> Said:
    done = machine.ask(*command(*words), timeout=120)
    return Said(done.returncode, done.stdout, done.stderr)


def _places() -> list[Path]:
    """The directories with the program and its interpreter, the outermost of each only."""
    wanted = [sys.base_prefix, sys.prefix, sysconfig.get_path("purelib"), SOURCE, *_libraries()]
    wanted.append(Path(_loader(sys.executable)).parent)
    places = sorted({Path(place).resolve() for place in wanted})
    return [place for place in places if not any(other in place.parents for other in places)]


def _libraries() -> list[str]:
    """Where this machine's loader finds libraries."""
    reported = subprocess.run(
        ["ldd", os.path.realpath(sys.executable)], capture_output=True, text=True, check=True
    ).stdout
    found = {str(Path(line.split("=> ")[1].split()[0]).parent) for line in reported.splitlines() if "=> /" in line}
    kinds = {f"{top}/{sysconfig.get_config_var('MULTIARCH')}" for top in ("/lib", "/usr/lib")}
    return sorted({os.path.realpath(place) for place in found | kinds if Path(place).is_dir()})


def _loader(program: str) -> str:
    """What the kernel starts for a program that is linked dynamically."""
    reported = subprocess.run(["ldd", os.path.realpath(program)], capture_output=True, text=True, check=True).stdout
    loaders = (line.split()[0] for line in reported.splitlines() if "=>" not in line and line.strip().startswith("/"))
    return os.path.realpath(next(loaders))
