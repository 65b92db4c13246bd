"""Units of a machine that fare in every way: one loops, one fails at boot, some wait for it, some are well."""

from tests.system.machines.nspawn_machine import Machine

TARGET = "multi-user.target"
LOOPS = """
[Unit]
Description=Joins nothing
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'echo "no permission to join"; sleep 0.3; exit 5'
Restart=always
RestartSec=200ms
"""
BOOTSTRAP = """
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo "fetch failed" >&2; exit 22'
"""
# Between the first cause and the one that people ask for.
BETWEEN = """
[Unit]
Requires=bootstrap.service
After=bootstrap.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
"""
WAITS = """
[Unit]
Requires=between.service
After=between.service
[Service]
ExecStart=/bin/sleep infinity
"""
CONDITION = """
[Unit]
ConditionPathExists=/nowhere/at/all
ConditionPathExists=/etc
[Service]
ExecStart=/bin/sleep infinity
"""
WORKS = """
[Service]
ExecStart=/bin/sleep infinity
"""
KILLED = """
[Service]
ExecStart=/bin/sh -c 'kill -SEGV $$$$'
"""
# It is asked to stop by a signal that stops nothing.
STUBBORN = """
[Service]
ExecStart=/bin/sleep infinity
KillSignal=SIGCONT
TimeoutStopSec=5min
"""
LOOPS_BEFORE = """
[Unit]
StartLimitIntervalSec=0
[Service]
WorkingDirectory=-/var/lib
ExecStartPre=/bin/sh -c 'exit 3'
ExecStart=/bin/sleep infinity
Restart=on-failure
RestartSec=200ms
"""
NEEDS_WHAT_IS_NOT_THERE = """
[Unit]
Requires=never-written.service
[Service]
ExecStart=/bin/sleep infinity
"""


def write_units(machine: Machine) -> None:
    """Put them on its disk, enabled, before it boots."""
    enabled = {
        "loops.service": LOOPS,
        "bootstrap.service": BOOTSTRAP,
        "waits.service": WAITS,
        "condition.service": CONDITION,
        "works.service": WORKS,
        "killed.service": KILLED,
        "loops-before.service": LOOPS_BEFORE,
        # A name that a careless program would take for an option, and one that has to be escaped on the bus.
        "-rf.service": WORKS,
        "odd\\x20name\\x22.service": WORKS,
    }
    for name, text in enabled.items():
        machine.write_unit(name, text, wanted_by=TARGET)
    machine.write_unit("between.service", BETWEEN)
    machine.write_unit("stubborn.service", STUBBORN)
    # Enabled for a target that nobody starts: systemd has not loaded them. (At boot it makes do without a unit that
    # is not there; later it refuses.)
    machine.write_unit("asleep.service", WORKS, wanted_by="rarely.target")
    machine.write_unit("orphan.service", NEEDS_WHAT_IS_NOT_THERE, wanted_by="rarely.target")
