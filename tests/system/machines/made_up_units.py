"""Units for machines of the tests, as images and administrators make them, under names that nobody knows."""

import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.parts import need
from tests.system.machines.nspawn_machine import PACKAGED_UNITS, SYSTEM_UNITS, Machine

_WANTED = "[Install]\nWantedBy=multi-user.target\n"


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


@dataclass(frozen=True)
class Strange:
    """Units that end badly in ways that are easily taken for one another, and what an engineer who is called at night
    has to learn of each. Names by what is the matter with them."""

    checks: str
    environment: str
    limit: str
    watchdog: str
    timed: str
    socket: str
    template: str

    @classmethod
    def named(cls) -> "Strange":
        names = [made_up_name() for _ in range(5)]
        return cls(*names, made_up_name("socket"), made_up_name().replace(".service", "@.service"))

    @property
    def served(self) -> str:
        """What the socket starts."""
        return self.socket.replace(".socket", ".service")

    def instance(self, name: str) -> str:
        return self.template.replace("@", f"@{name}")

    @property
    def troubled(self) -> set[str]:
        reported = {self.checks, self.environment, self.limit, self.watchdog, self.timed, self.socket, self.served}
        return {*reported, self.instance("two")}

    def units(self) -> dict[str, str]:
        """Those that an image brings, by name."""
        return {
            self.checks: "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=on-failure\nRestartSec=300ms\n"
            "ExecStartPre=-/bin/false\nExecStartPre=/bin/sh -c 'echo no state there >&2; exit 78'\n"
            f"ExecStart=/bin/sleep infinity\n{_WANTED}",
            self.environment: "[Service]\nEnvironmentFile=-/etc/may/be/missing\nEnvironmentFile=/etc/strange/env\n"
            f"ExecStart=/bin/sleep infinity\n{_WANTED}",
            self.limit: "[Unit]\nStartLimitIntervalSec=300\nStartLimitBurst=3\n[Service]\nRestart=always\n"
            f"RestartSec=50ms\nExecStart=/bin/sh -c 'exit 98'\n{_WANTED}",
            self.watchdog: "[Service]\nType=notify\nNotifyAccess=all\nWatchdogSec=500ms\n"
            f"ExecStart=/bin/sh -c 'systemd-notify --ready; exec sleep 600'\n{_WANTED}",
            self.timed: "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo 403 Forbidden >&2; exit 9'\n",
            self.timed.replace(".service", ".timer"): "[Timer]\nOnActiveSec=100ms\nOnUnitInactiveSec=500ms\n"
            f"AccuracySec=10ms\n{_WANTED}",
            self.socket: f"[Socket]\nListenStream=/run/{self.socket}\n{_WANTED}",
            # However long five starts take here.
            self.served: "[Unit]\nStartLimitIntervalSec=1h\n[Service]\nExecStart=/bin/sh -c 'kill -SEGV $$$$'\n",
        }

    @property
    def started(self) -> tuple[str, ...]:
        """Those that are enabled in the image."""
        return (
            self.checks,
            self.environment,
            self.limit,
            self.watchdog,
            self.timed.replace("service", "timer"),
            self.socket,
        )

    def put(self, machine: Machine) -> None:
        """The instances of a template: one works, one does not."""
        text = "[Service]\nExecStart=/bin/sh -c '[ %i = one ] && exec sleep infinity; exit 3'\n"
        machine.write_unit(self.template, text)
        for name in ("one", "two"):
            link = machine.disk / SYSTEM_UNITS / "multi-user.target.wants" / self.instance(name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"/{SYSTEM_UNITS}/{self.template}")

    def call(self, machine: Machine) -> None:
        """Connect to the socket until systemd has had enough of what it starts, and see each of them at its end."""
        words = "use IO::Socket::UNIX; IO::Socket::UNIX->new(Peer => $ARGV[0])"

        def has_enough() -> bool:
            machine.ask("perl", "-e", words, f"/run/{self.socket}")
            return machine.state(self.socket) == "failed"

        machine.wait_until("systemd had enough of it", has_enough)
        for name in (self.environment, self.limit, self.watchdog, self.served, self.instance("two")):
            machine.wait_for_failure(name)
        machine.wait_for_restarts(self.checks, 4)
        # Whatever starts it again may do so while somebody looks: that it fails each time is reported by its past.
        ends = "Failed with result"
        log = ("journalctl", "--quiet", "--output=cat", f"--unit={self.timed}")
        machine.wait_until("the timer's job failed often", lambda: machine.run(*log).count(ends) >= 4)

    def reasons(self) -> dict[str, tuple[str, ...]]:
        """What has to be said of each."""
        return {
            self.checks: ("its ExecStartPre= ended with code 78", "its program was not started"),
            self.environment: ("EnvironmentFile=/etc/strange/env is not there", "stays down"),
            self.limit: ("ended with code 98", "systemd gave up on it: more than 3 starts within 300 s", "stays down"),
            self.watchdog: ("SIGABRT", "stopped giving signs of life"),
            self.timed: ("ended with code 9", f"{self.timed.replace('service', 'timer')} starts it again", "access"),
            self.socket: ("started too often", f"{self.served} is not started by it any more"),
            self.served: ("SIGSEGV", f"{self.socket}, which starts it, failed too"),
            self.instance("two"): ("ended with code 3", "stays down"),
        }
