"""Units for machines of the tests, as images and administrators make them, under names that nobody knows."""

import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.parts import need
from tests.system.machines.nspawn_machine import PACKAGED_UNITS, SYSTEM_UNITS, Machine


def made_up_name(kind: str = "service") -> str:
    """A name that no catalogue has."""
    return f"{secrets.choice(('frob', 'quux', 'zarf'))}{secrets.token_hex(3)}.{kind}"


def crash_loops(says: str = "no cluster to join", code: int = 5, lasts_s: float = 0.2, unit: str = "") -> str:
    """Comes up, finds that it can't work, and ends; systemd starts it again, for ever."""
    return f"""[Unit]
Description=An agent that crash-loops
StartLimitIntervalSec=0
{unit}
[Service]
ExecStart=/bin/sh -c 'echo "{says}" >&2; sleep {lasts_s}; exit {code}'
Restart=always
RestartSec=200ms
[Install]
WantedBy=multi-user.target
"""


def works(unit: str = "", service: str = "") -> str:
    return f"""[Unit]
Description=A service that works
{unit}
[Service]
ExecStart=/bin/sleep infinity
{service}
[Install]
WantedBy=multi-user.target
"""


def hears_of_its_end(does: str, service: str = "") -> str:
    """A service that does this when it is asked to end, from the moment on that it is up: one that is only just begun
    would be ended by the signal itself."""
    return f"""[Unit]
Description=A service that hears of its end
[Service]
Type=notify
NotifyAccess=all
ExecStart=/bin/sh -c 'trap "{does}" TERM; systemd-notify --ready; while :; do sleep 0.1; done'
{service}
[Install]
WantedBy=multi-user.target
"""


def fails_once(code: int, says: str = "could not do it", unit: str = "") -> str:
    """A job that is done once, and fails."""
    return f"""[Unit]
Description=A job that fails
{unit}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'echo "{says}" >&2; exit {code}'
[Install]
WantedBy=multi-user.target
"""


def install_package(
    machine: Machine, name: str, units: Mapping[str, str], scratch: Path, *, enable: bool = True
) -> None:
    """A real package that brings these units, put on a machine that is off, as the maker of an image does it."""
    staged = scratch / name
    (staged / "DEBIAN").mkdir(parents=True)
    (staged / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <n@example.org>\nDescription: units\n"
    )
    place = staged / PACKAGED_UNITS
    place.mkdir(parents=True)
    for unit, text in units.items():
        (place / unit).write_text(text)
        (place / unit).chmod(0o644)
    package = scratch / f"{name}.deb"
    _run(need("dpkg-deb"), "--root-owner-group", "--build", str(staged), str(package))
    _run(need("dpkg"), f"--root={machine.disk}", "--force-not-root", "--log=/dev/null", "--install", str(package))
    for unit in units if enable else ():
        machine.enable(unit, "multi-user.target", below=PACKAGED_UNITS)


def configure(machine: Machine, units: Mapping[str, str], *, start: bool = True) -> None:
    """Units that an administrator writes on a machine that runs, enables and starts."""
    for unit, text in units.items():
        machine.write_unit(unit, text, wanted_by="multi-user.target", below=SYSTEM_UNITS)
    machine.reload()
    for unit in units if start else ():
        machine.start(unit)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
