"""The recorder's rows about services of a real systemd: what is recorded, how it is paired, what it costs at rest."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jeepney import HeaderFields, MessageType
from tests.system.machines.exhume_outside import SOURCE
from tests.system.machines.machine_units import KILLED, LOOPS, WAITS, WORKS
from tests.system.machines.nspawn_machine import Machine

from exhume.collect.sources.unit_events import UnitEventSource
from exhume.collect.systemd.bus import UNIT, Bus, Call, get_all
from exhume.model.clock import NANOS, Tick
from exhume.model.tables import columns_of

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter")]

_BUS, _BUS_PATH = "org.freedesktop.DBus", "/org/freedesktop/DBus"
MEMORY = """
import sys, time
from pathlib import Path
from exhume.collect import source_set
from exhume.collect.sources.unit_events import UnitEventSource
from exhume.model.clock import Tick

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4

before, heard, number = resident(), 0, 0
source = UnitEventSource(Path(sys.argv[1]))
until = time.monotonic() + 60
# Until it had much to keep in mind; how soon that is is the machine's affair.
while heard < 8 and time.monotonic() < until:
    time.sleep(0.1)
    now, number = time.monotonic_ns(), number + 1
    heard += len(source.read(Tick(number, now - 10**8, now, time.time_ns())).get("events", {}).get("time", ()))
print(heard, resident() - before)
"""
QUIET = """
[Service]
Type=oneshot
ExecStart=/bin/true
"""
MARKER, WORKS_PATH = "marker.service", "/org/freedesktop/systemd1/unit/works_2eservice"
# It ends so many times, and then stays: nobody has to stop it in the middle of a turn to have it counted.
TURNS = 5
TURNING = f"""
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'echo turn >> /run/turns; [ $$(wc -l < /run/turns) -gt {TURNS} ] && exec sleep infinity; exit 5'
Restart=always
RestartSec=100ms
"""


@pytest.fixture(scope="module")
def machine(tree: Path) -> Iterator[Machine]:
    with Machine(tree) as machine:
        machine.write_unit(
            "fails.service", "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sh -c 'exit 7'\n"
        )
        machine.write_unit("works.service", WORKS)
        machine.write_unit("killed.service", KILLED)
        machine.write_unit("loops.service", LOOPS)
        machine.write_unit("between.service", "[Unit]\nRequires=fails.service\nAfter=fails.service\n" + QUIET)
        machine.write_unit("fails-once.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
        machine.write_unit("waits.service", WAITS.replace("between", "fails-once"))
        machine.write_unit("odd\\x20name.service", QUIET)
        machine.write_unit("turns.service", TURNING)
        machine.write_unit(MARKER, f"[Unit]\nStartLimitIntervalSec=0\n{QUIET}")
        machine.boot()
        yield machine


@pytest.fixture
def source(machine: Machine) -> Iterator[UnitEventSource]:
    source = UnitEventSource(machine.root / "run/dbus/system_bus_socket")
    yield source
    source.close()


class Reader:
    """Reads a source as the recorder's loop does, but as often as a test likes."""

    def __init__(self, source: UnitEventSource) -> None:
        self.source = source
        self.rows: list[dict[str, Any]] = []
        self._number = 0

    def read(self) -> None:
        now = time.monotonic_ns()
        self._number += 1
        reported = self.source.read(Tick(self._number, now - NANOS, now, time.time_ns())).get("events", {})
        self.rows += [dict(zip(reported, values, strict=True)) for values in zip(*reported.values(), strict=True)]

    def all_so_far(self, machine: Machine) -> None:
        """Read whatever systemd has reported up to now: it tells in order, so one thing more comes after all of it."""
        seen = len(self.of(MARKER, "unit-ended"))

        def marked() -> bool:
            # Again and again: one that has just been restarted may not be connected to its bus yet.
            machine.run("systemctl", "start", MARKER)
            self.read()
            return len(self.of(MARKER, "unit-ended")) > seen

        self.until("the mark", marked)

    def until(self, what: str, happened: Callable[[], object], patience: float = 60.0) -> None:
        deadline = time.monotonic() + patience
        while not happened():
            assert time.monotonic() < deadline, f"{what}: {self.rows}"
            time.sleep(0.05)
            self.read()

    def of(self, unit: str, kind: str | None = None) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["comm"] == unit and kind in (None, row["kind"])]


def test_a_failure_is_a_start_an_end_with_its_code_and_a_failure(machine: Machine, source: UnitEventSource):
    reader = Reader(source)
    before = time.monotonic_ns()
    machine.start("fails.service")
    reader.until("it failed", lambda: reader.of("fails.service", "unit-failed"))
    (started,), (ended,), (failed,) = (
        reader.of("fails.service", kind) for kind in ("unit-started", "unit-ended", "unit-failed")
    )
    assert before < started["time"] <= ended["time"] < time.monotonic_ns()
    assert started["pid"] > 0
    assert (ended["value"], ended["text"]) == (7.0, "unit fails.service ended with code 7")
    assert (failed["severity"], failed["text"]) == ("warning", "unit fails.service failed (exit-code)")
    assert not reader.of("fails.service", "unit-restarted")


def test_rows_fit_the_table(machine: Machine, source: UnitEventSource):
    reader = Reader(source)
    machine.start("odd\\x20name.service")
    reader.until("it ended", lambda: reader.of("odd\\x20name.service", "unit-ended"))
    assert {name for row in reader.rows for name in row} <= {column.name for column in columns_of("events")}
    assert {row["source"] for row in reader.rows} == {"systemd"}
    assert reader.of("odd\\x20name.service", "unit-ended")[0]["value"] == 0.0


def test_a_signal_is_reported_as_by_a_shell(machine: Machine, source: UnitEventSource):
    reader = Reader(source)
    machine.start("killed.service")
    reader.until("it ended", lambda: reader.of("killed.service", "unit-ended"))
    assert reader.of("killed.service", "unit-ended")[0]["value"] == 128 + 11


def test_a_failed_dependency_is_reported(machine: Machine, source: UnitEventSource):
    reader = Reader(source)
    machine.start("waits.service")
    reader.until("it was kept", lambda: reader.of("waits.service"))
    assert [row["kind"] for row in reader.of("waits.service")] == ["unit-failed"]
    assert "a unit that it requires failed" in reader.of("waits.service")[0]["text"]


def test_every_restart_of_a_loop_is_recorded(machine: Machine, source: UnitEventSource):
    reader = Reader(source)
    machine.start("turns.service")
    reader.until("it loops", lambda: len(reader.of("turns.service", "unit-ended")) >= TURNS)
    last_turn = {"NRestarts": str(TURNS), "SubState": "running"}
    machine.wait_until("it stays", lambda: machine.show("turns.service", *last_turn) == last_turn)
    reader.all_so_far(machine)
    numbers = [row["value"] for row in reader.of("turns.service", "unit-restarted")]
    assert numbers == [float(n) for n in range(1, TURNS + 1)]
    assert len(reader.of("turns.service", "unit-started")) == TURNS + 1
    assert [row["value"] for row in reader.of("turns.service", "unit-ended")] == [5.0] * TURNS
    machine.run("systemctl", "stop", "turns.service")
    reader.all_so_far(machine)
    assert [row["value"] for row in reader.of("turns.service", "unit-ended")] == [*[5.0] * TURNS, 128.0 + 15]
    assert len(reader.of("turns.service", "unit-restarted")) == TURNS
    assert not reader.of("turns.service", "unit-failed")


def test_what_was_before_is_no_news(machine: Machine):
    machine.start("fails.service")
    machine.wait_until("it failed", lambda: machine.state("fails.service") == "failed")
    place = machine.root / "run/dbus/system_bus_socket"
    with Bus(place) as bus:
        # Its answer comes after all that it reported before: nothing of that is under way any more.
        bus.call(get_all(WORKS_PATH, UNIT))
    source = UnitEventSource(place)
    try:
        reader = Reader(source)
        # The signals about these tell of the old start, end and failure once more.
        machine.reload()
        machine.ask("systemctl", "daemon-reexec")
        machine.wait_until("systemd is back", lambda: not machine.ask("systemctl", "list-jobs").returncode)
        machine.run("systemctl", "reset-failed", "fails.service")
        reader.all_so_far(machine)
        assert not reader.of("fails.service")
    finally:
        source.close()


def test_after_a_lost_bus_missed_events_are_recorded(machine: Machine, monkeypatch: Any):
    monkeypatch.setattr("exhume.collect.sources.unit_events._LOOK_EVERY_S", 0.1)
    source = UnitEventSource(machine.root / "run/dbus/system_bus_socket")
    try:
        reader = Reader(source)
        machine.start("fails.service")
        reader.until("it failed", lambda: reader.of("fails.service", "unit-failed"))
        machine.run("systemctl", "restart", "dbus.service")
        machine.start("fails.service")
        reader.until("the second end", lambda: len(reader.of("fails.service", "unit-ended")) == 2)
        first, second = reader.of("fails.service", "unit-ended")
        assert first["time"] < second["time"]
    finally:
        source.close()


def test_an_idle_source_makes_no_calls(machine: Machine, source: UnitEventSource):
    """However many units there are: the bus itself tells that no question to systemd passes it."""
    reader = Reader(source)
    reader.all_so_far(machine)
    place = machine.root / "run/dbus/system_bus_socket"
    with Bus(place) as monitor, Bus(place) as other:
        monitor.call(Call(_BUS_PATH, f"{_BUS}.Monitoring", "BecomeMonitor", "asu", ([], 0), destination=_BUS))
        # Others on the machine may ask something, too: one time out of a few nobody does.
        for _ in range(10):
            began = time.thread_time()
            for _ in range(50):
                reader.read()
            spent = time.thread_time() - began
            # Heard in order, so all that was asked meanwhile comes before this.
            other.call(get_all(WORKS_PATH, UNIT))
            questions = questions_heard(monitor, WORKS_PATH)
            if not questions:
                break
        assert questions == []
    # Far from a measurement of the cost: a look at every unit would take ten times as much for each reading.
    assert spent / 50 < 0.002


def test_it_takes_little_memory(machine: Machine):
    """Beside what the recorder has in any case: the protocol, the connection and what is kept in mind."""
    machine.start("loops.service")
    try:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, os.fspath(machine.root / "run/dbus/system_bus_socket")],
            env={**os.environ, "PYTHONPATH": os.fspath(SOURCE)},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        machine.run("systemctl", "stop", "loops.service")
    heard, kilobytes = map(int, done.stdout.split())
    assert heard >= 8
    assert kilobytes < 2048


def questions_heard(monitor: Bus, last: str) -> list[str]:
    """To whom, up to the one about this object."""
    heard: list[str] = []
    # Its own parser: it may have the beginning of a message already.
    parser = monitor._parser
    while True:
        assert select.select([monitor._socket], [], [], 60)[0], f"nothing was heard of {last}, only {heard}"
        for message in parser.feed(monitor._socket.recv(1 << 16)):
            if message.header.message_type is MessageType.method_call:
                if message.header.fields[HeaderFields.path] == last:
                    return heard
                heard.append(message.header.fields[HeaderFields.destination])
