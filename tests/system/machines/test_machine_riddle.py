"""Two machines of one image: on one a bootstrap failed, so that its agent never started; on the other it crash-loops.
What their audits and their inventories say differs in just that."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.system.machines.exhume_outside import Exhume, Program
from tests.system.machines.made_up_units import crash_loops, install_package, made_up_name, works
from tests.system.machines.nspawn_machine import Machine

from exhume.model.inventory.codec import inventory_of

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv", "dpkg-deb")]

BOOTSTRAP, AGENT, OTHER = (made_up_name() for _ in range(3))
SECRET = "hunter2-hunter2"
# What differs between any two looks: clocks, process numbers, counters.
MOVES = {"pid", "started", "age_seconds", "restarts", "at", "costs", "history", "cgroup", "created", "log"}
MINUTE = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b")


def bootstrap() -> str:
    return """[Unit]
Description=Joins the cluster
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'test ! -e /etc/no-metadata || { echo "metadata: no answer" >&2; exit 22; }'
"""


@dataclass(frozen=True, slots=True)
class Riddle:
    """What was said of the machine where the bootstrap failed, and of the one where it did not."""

    audits: tuple[dict[str, Any], dict[str, Any]]
    inventories: tuple[Path, Path]


@pytest.fixture(scope="module")
def riddle(tree: Path, program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Riddle]:
    with ExitStack() as stack:
        reported, inventories = [], []
        for number in range(2):
            machine = stack.enter_context(Machine(tree))
            units = {
                BOOTSTRAP: bootstrap(),
                AGENT: crash_loops(unit=f"Requires={BOOTSTRAP}\nAfter={BOOTSTRAP}"),
                OTHER: works(service=f"Environment=API_KEY={SECRET}\nEnvironment=PLAIN={SECRET}"),
            }
            install_package(machine, "two-of-a-kind", units, tmp_path_factory.mktemp("package"))
            if number == 0:
                machine.write("/etc/no-metadata", "")
            machine.boot()
            if number == 1:
                machine.wait_for_restarts(AGENT, 6)
            outside = Exhume(program, machine, tmp_path_factory.mktemp("work"))
            said = outside.audit("--all", "--json")
            assert said.code == 1, said.err
            reported.append(said.json())
            taken = outside.inventory("--json")
            assert taken.code == 0, taken.err
            inventories.append(outside.work / f"{number}.json")
            inventories[-1].write_text(taken.out)
        yield Riddle((reported[0], reported[1]), (inventories[0], inventories[1]))


@pytest.fixture
def audits(riddle: Riddle) -> tuple[dict[str, Any], dict[str, Any]]:
    return riddle.audits


def still(value: Any) -> Any:
    """Without what moves by itself; in sentences too, which name the minute of the first boot."""
    if isinstance(value, dict):
        return {key: still(each) for key, each in value.items() if key not in MOVES}
    if isinstance(value, str):
        return MINUTE.sub("then", value)
    return [still(each) for each in value] if isinstance(value, list) else value


def shape(value: Any) -> Any:
    """Which fields there are."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return None


def by_id(audit: dict[str, Any]) -> dict[str, Any]:
    return {each["id"]: each for each in audit["services"]}


def test_just_the_bootstrap_and_its_agent_differ(audits: tuple[dict[str, Any], dict[str, Any]]):
    one, other = (by_id(audit) for audit in audits)
    assert one.keys() == other.keys()
    assert {name for name in one if still(one[name]) != still(other[name])} == {BOOTSTRAP, AGENT}


def test_why_the_one_did_not_start_and_that_the_other_loops(audits: tuple[dict[str, Any], dict[str, Any]]):
    never, loops = (by_id(audit)[AGENT] for audit in audits)
    assert never["traits"][0] == "dependency-failed" and loops["traits"][0] == "crash-loop"
    assert never["wants"]["failed"] == [BOOTSTRAP] and loops["wants"]["failed"] == []
    (why,) = [sentence for sentence in never["explained"] if BOOTSTRAP in sentence]
    assert "22" in why or any("22" in sentence for sentence in never["explained"])
    assert not any(BOOTSTRAP in sentence for sentence in loops["explained"])
    failed, done = (by_id(audit)[BOOTSTRAP] for audit in audits)
    assert failed["traits"][0] == "failed" and failed["last_exit"]["code"] == 22
    assert done["state"] == "active" and "failed" not in done["traits"]


def test_both_have_the_same_fields_in_the_same_order(audits: tuple[dict[str, Any], dict[str, Any]]):
    one, other = audits
    assert list(one) == list(other)
    fields = {tuple(each) for audit in audits for each in audit["services"]}
    assert len(fields) == 1


def test_the_comparison_says_it_in_one_sentence(riddle: Riddle, program: Program):
    failed, well = map(str, riddle.inventories)
    said = program.run("compare", well, failed, "--json")
    assert said.code == 1, said.err
    found = said.json()
    a, b = found["a"]["label"], found["b"]["label"]
    assert found["sentence"] == f"{AGENT} crash-loops on {a}; on {b} it never started, because {BOOTSTRAP} failed"
    # Nothing but that: the machines are of one image, and what is of each alone does not count. They share the kernel,
    # whose settings other tests may change between the two.
    differing = [each["key"] for each in found["differences"] if not each["key"].startswith("sysctl.kernel.")]
    assert differing == [f"unit.{AGENT}", f"unit.{BOOTSTRAP}", "bootstrap"]
    assert found["differences"][1]["b"]["exit"] == "code 22"
    assert "packages" not in [each["section"] for each in found["unread"]] and found["compared"] > 200


def test_the_sentence_comes_first_whichever_side_is_named_first(riddle: Riddle, program: Program, tmp_path: Path):
    failed, well = map(str, riddle.inventories)
    page = tmp_path / "difference.html"
    for sides in ((failed, well), (well, failed)):
        found = program.run("compare", *sides, "--json").json()
        labels = {side: found[name]["label"] for side, name in zip(sides, "ab", strict=True)}
        loops, never = labels[well], labels[failed]
        # The side that was named first comes first.
        sentence = (
            f"{AGENT} crash-loops on {loops}; on {never} it never started, because {BOOTSTRAP} failed"
            if sides[0] == well
            else f"{AGENT} never started on {never}, because {BOOTSTRAP} failed; on {loops} it crash-loops"
        )
        assert found["sentence"] == sentence and found["differences"][0]["key"] == f"unit.{AGENT}"
        said = program.run("compare", *sides, "--html", str(page))
        assert said.code == 1, said.err
        # Wrapped where the terminal ends; nothing is before it but the verdict.
        assert " ".join(said.out.split()).removeprefix("DIFFERENT ").startswith(sentence)
        assert AGENT in page.read_text() and BOOTSTRAP in page.read_text()


def test_a_machine_is_like_itself(riddle: Riddle, program: Program):
    same = str(riddle.inventories[0])
    assert program.run("compare", same, same).code == 0


def test_an_inventory_has_no_secrets_and_names_what_is_missing(riddle: Riddle):
    found = inventory_of(riddle.inventories[0].read_text())
    assert found.packages is not None and found.packages.manager == "dpkg"
    assert found.packages.versions["two-of-a-kind"] == "1.0"
    assert found.boot is not None and found.boot.because == (BOOTSTRAP,) and found.boot.system == "degraded"
    assert {each.section for each in found.missing} >= {"containers", "labels"}
    assert SECRET not in riddle.inventories[0].read_text()
