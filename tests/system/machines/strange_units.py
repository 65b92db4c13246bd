"""Units that end badly in ways that are easily taken for one another, under names that nobody knows. For each there is
what an engineer who is called at night has to learn."""

from dataclasses import dataclass

from tests.system.machines.made_up_units import made_up_name
from tests.system.machines.nspawn_machine import SYSTEM_UNITS, Machine

_WANTED = "[Install]\nWantedBy=multi-user.target\n"


@dataclass(frozen=True)
class Strange:
    """Names by what is the matter with each."""

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
