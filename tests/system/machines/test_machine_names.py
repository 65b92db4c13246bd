"""Names, descriptions and log lines of units that were made to do harm: none comes of them."""

import os
import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.machines.exhume_outside import Exhume, Program, Said
from tests.system.machines.made_up_units import configure, crash_loops
from tests.system.machines.nspawn_machine import PACKAGED_UNITS, Machine

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv")]

# The same for every worker of one run, which have to agree on the names of tests; another in the next run.
MARK = f"/tmp/exhume-{os.environ.get('PYTEST_XDIST_TESTRUNUID') or secrets.token_hex(8)}"
# As long as a unit may be called; its directory of drop-ins would be too long for a disk.
LONGEST = "l" * (255 - len(".service")) + ".service"
LONGEST_OWN = "o" * (255 - len(".service")) + ".service"
# Every one of them is a name that systemd takes, some by its own way of escaping.
UNITS = (
    "-rf.service",
    "--help.service",
    "-.service",
    "..service",
    r"a\x20b\x27c\x22.service",
    r"\x24\x28touch\x20\x2ftmp\x2fx\x29.service",
    r"gr\xc3\xbc\xc3\x9fe.service",
    "at@inst.service",
    "x" * 200 + ".service",
    LONGEST,
)
NOT_THERE = "no-such-unit-here.service"
# Files in the place of units that systemd takes for none; arguments to the program all the same.
NO_UNITS = (
    "with space.service",
    "quote'\".service",
    f"$(touch {MARK}).service",
    f"`touch {MARK}`.service",
    f"; touch {MARK} ;.service",
    "grüße.service",
    "new\nline.service",
    "../../../etc/passwd",
    "../x.service",
    "a/b.service",
    "%n.service",
    "*.service",
    "",
    "l" * 300 + ".service",
    NOT_THERE,
    "at@.service",
    "\x1b[31mred.service",
)
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b31m"


@pytest.fixture(scope="module")
def machine(tree: Path) -> Iterator[Machine]:
    with Machine(tree) as made:
        for name in NO_UNITS:
            if name and "/" not in name and len(name) < 256 and name != NOT_THERE:
                made.write_unit(name, crash_loops())
        made.boot()
        # As a file and from within: the log line has real escapes in it.
        made.write("/usr/local/bin/shout", f"#!/bin/sh\nprintf '%b' {shlex.quote(ESCAPES)}'\\n' >&2\nexit 9\n", 0o755)
        loud = crash_loops().replace("An agent", f"An {ESCAPES} $(touch {MARK}) `touch {MARK}` [bold]agent[/bold]")
        # Ten of them at their usual pace would be a load of their own.
        loud = loud.replace("RestartSec=200ms", "RestartSec=700ms").replace(
            "ExecStart=/bin/sh -c", "ExecStart=/usr/local/bin/shout"
        )
        made.write_unit("at@.service", loud)
        made.write_unit(LONGEST, loud, wanted_by="multi-user.target", below=PACKAGED_UNITS)
        plain = [name for name in (*UNITS, LONGEST_OWN) if name not in (LONGEST, "at@inst.service")]
        configure(made, dict.fromkeys(plain, loud), start=False)
        for name in UNITS:
            made.start(name, wait=False)
        for name in UNITS:
            made.wait_for_restarts(name, 3)
        yield made


@pytest.fixture
def exhume(program: Program, machine: Machine, tmp_path: Path) -> Exhume:
    return Exhume(program, machine, tmp_path / "work")


def is_harmless(said: Said, machine: Machine) -> None:
    for text in (said.out, said.err):
        assert "\x1b" not in text and "\x9b" not in text and "\x07" not in text
        assert "Traceback" not in text
    assert not Path(MARK).exists() and not (machine.root / MARK.lstrip("/")).exists()


def test_the_audit_names_them_and_shows_no_orders_to_the_terminal(machine: Machine, exhume: Exhume):
    for words in ((), ("--json", "--all")):
        said = exhume.audit(*words)
        assert said.code == 1
        is_harmless(said, machine)
    reported = {each["id"]: each for each in said.json()["services"]}
    for name in UNITS:
        assert reported[name]["traits"][0] == "crash-loop", name
        # Of a name that no cgroup can have, the journal can't tell what the program wrote: then it is systemd's word.
        said_last = "red" if len(name) < 255 else "Main process exited"
        assert any(said_last in line for line in reported[name]["log"]), name


@pytest.mark.parametrize("unit", UNITS, ids=lambda name: name[:24])
def test_each_is_stopped_and_put_back(machine: Machine, exhume: Exhume, unit: str):
    before = machine.digest()
    said = exhume.fix("apply", "--yes", "--no-zombies", "--baseline", "0s", "--", unit)
    is_harmless(said, machine)
    assert said.code == 0, (said.out, said.err)
    assert machine.state(unit) == "inactive"
    machine.start(unit)
    assert machine.state(unit) == "inactive"
    said = exhume.fix("rollback")
    is_harmless(said, machine)
    assert said.code == 0, (said.out, said.err)
    assert machine.digest() == before
    assert machine.state(unit) in ("activating", "active", "deactivating")


@pytest.mark.parametrize("unit", UNITS[:1] + UNITS[4:6])
def test_the_commands_of_a_plan_can_be_typed(machine: Machine, exhume: Exhume, unit: str):
    before = machine.digest()
    said = exhume.fix("plan", "--json", "--", unit)
    is_harmless(said, machine)
    steps = said.json()["steps"]
    for command in [command for step in steps for command in step["commands"]]:
        machine.run("sh", "-c", command)
    ((path, text),) = [(each["path"], each["content"]) for step in steps for each in step["files"]]
    # A person who types it is not exhume, so the marks are left out.
    typed = (machine.disk / path.lstrip("/")).read_text()
    assert typed and typed == "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    machine.start(unit)
    # It stays down. One that ended by itself in the moment of its stop is a failed one: nobody asked systemd otherwise.
    assert machine.state(unit) in ("inactive", "failed")
    machine.run("rm", "-r", "--", str(Path(path).parent))
    machine.reload()
    machine.start(unit, wait=False)
    is_harmless(said, machine)
    assert machine.digest() == before


def test_one_that_can_neither_have_a_drop_in_nor_be_masked_is_refused(machine: Machine, exhume: Exhume):
    before = machine.digest()
    said = exhume.fix("apply", LONGEST_OWN, "--yes", "--no-zombies", "--baseline", "0s")
    is_harmless(said, machine)
    assert said.code == 2 and "too long" in said.err, (said.out, said.err)
    assert machine.digest() == before


@pytest.mark.parametrize("name", NO_UNITS, ids=lambda name: repr(name)[:24])
def test_what_is_no_unit_is_refused_in_a_sentence(machine: Machine, exhume: Exhume, name: str):
    before = machine.digest()
    said = exhume.fix("plan", "--", name)
    is_harmless(said, machine)
    assert said.code in (2, 3) and (said.out + said.err).strip(), (said.out, said.err)
    said = exhume.fix("apply", "--yes", "--no-zombies", "--baseline", "0s", "--", name)
    is_harmless(said, machine)
    assert said.code == 2, (said.out, said.err)
    assert said.err.strip() and len(said.err.strip().splitlines()) <= 2, said.err
    assert machine.digest() == before
