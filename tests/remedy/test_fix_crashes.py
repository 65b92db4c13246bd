"""kill -9 at every point of a fix: rolling back and applying again both end well. Real processes, real files."""

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest
from tests.remedy.killing import die_at_call, die_at_point, killed
from tests.remedy.pretend_systemd import UNITS, PretendSystemd

from exhume.control.managers import Controls
from exhume.control.unit_files import OwnFiles
from exhume.model.audit import Manager, Service
from exhume.model.remedy import Plan
from exhume.model.stop import Stop
from exhume.remedy.fixer import Fixer, Point
from exhume.remedy.ledger import Entry, Fix, FixState, Ledger, Mark, SavedPlan, new_id
from exhume.remedy.services.actions import service_actions
from exhume.remedy.services.planner import Planner
from exhume.remedy.services.refusals import Surroundings
from exhume.remedy.services.steps import Selection

AGENT, TIMER, READER = "agent.service", "agent.timer", "reader.service"
# One for all: each holds two files open.
NEVER = Stop()
LONG = f"{'l' * 246}.service"
HOG, WEIGHT = "hog.service", 20


class Node:
    """A node made of files: an agent with a timer, something that requires it, one with a name of full length, and
    one that is to give way."""

    def __init__(self, place: Path) -> None:
        self.root = place / "root"
        (self.root / UNITS / f"{TIMER}.d").mkdir(parents=True)
        (self.root / UNITS / f"{TIMER}.d/10-theirs.conf").write_text("[Timer]\nOnCalendar=daily\n")
        units = {
            AGENT: {"active": "activating", "triggered_by": TIMER, "required_by": READER},
            TIMER: {"active": "active"},
            READER: {"active": "active"},
            LONG: {"active": "active"},
            HOG: {"active": "active"},
        }
        self.systemd = PretendSystemd(self.root, units)
        self.systemd.daemon_reload()
        self.ledger = Ledger(place / "work")
        self.before = self.state()

    def fixer(self, hear: Callable[[Point, Entry], None] = lambda point, entry: None) -> Fixer:
        return Fixer(self.ledger, service_actions(self.controls, self.files), NEVER, hear)

    def begun(self) -> Fix:
        """A fix of three services, written down, nothing done."""
        chosen = [Selection(Service(Manager.SYSTEMD, name, name)) for name in (AGENT, LONG)]
        now = 1_790_000_000_000_000_000
        planner = Planner(self.controls, self.files, Surroundings(), new_id(now), "now", force_required=True)
        steps, refused = planner.steps(chosen)
        assert not refused
        hog = Selection(Service(Manager.SYSTEMD, HOG, HOG))
        steps += replace(planner, cpu_weight=WEIGHT).steps([hog])[0]
        assert [step.id for step in steps] == [
            f"stop:{AGENT}", f"hold-back:{AGENT}", f"stop:{LONG}", f"mask:{LONG}", f"cpu-weight:{HOG}",
        ]  # fmt: skip
        saved = SavedPlan(planner.fix, Plan("both", None, "both", tuple(steps)), "n", "m", "/", "b", now)
        return self.ledger.save(saved.begun())

    @property
    def controls(self) -> Controls:
        return Controls(self.systemd)

    @property
    def files(self) -> OwnFiles:
        return OwnFiles(lambda name: self.root / name.lstrip("/"))

    def state(self) -> tuple[dict[str, object], dict[str, str], dict[str, dict[str, str]]]:
        """The whole tree, what runs, and what systemd has read."""
        units = self.systemd.units()
        runs = {name: "runs" if known["active"] in ("active", "activating") else "no" for name, known in units.items()}
        read = {name: {key: value for key, value in known.items() if key != "active"} for name, known in units.items()}
        return tree(self.root), runs, read

    def check_applied(self) -> None:
        assert self.systemd.active() == {**dict.fromkeys((AGENT, TIMER, READER, LONG), "inactive"), HOG: "active"}
        assert self.systemd.cpu_weight(HOG) == WEIGHT
        for unit in (AGENT, TIMER):
            text = (self.root / UNITS / f"{unit}.d/90-exhume.conf").read_text()
            assert f"ConditionPathExists=!/etc/systemd/system/{unit}.d/90-exhume.conf\n" in text
            assert self.systemd.start(unit) == "done"
        assert (self.root / UNITS / LONG).readlink() == Path("/dev/null")
        assert self.systemd.active()[AGENT] == self.systemd.active()[TIMER] == "inactive", "it is held back"
        (fix,) = self.ledger.fixes()
        assert fix.state is FixState.APPLIED
        assert {entry.mark for entry in fix.entries} == {Mark.DONE}

    def check_rolled_back(self) -> None:
        assert self.state() == self.before
        (fix,) = self.ledger.fixes()
        assert fix.state is FixState.ROLLED_BACK

    def newest(self) -> Fix:
        fix = self.ledger.newest()
        assert fix is not None
        return fix


def tree(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path.relative_to(root))] = (stat.filemode(mode), content)
    return found


@pytest.fixture
def fresh():
    """Makes nodes that know nothing of each other. In memory: thousands of fsyncs would keep a disk busy."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield lambda: Node(Path(mkdtemp(dir=directory)))


def every_point(fresh, work: Callable[[Node, int], bool], check: Callable[[Node], None], least: int) -> None:
    """Kill at the first point, the second, ... until nothing is left to kill at, and check each time."""
    number = 0
    while True:
        node = fresh()
        if not work(node, number):
            break
        check(node)
        number += 1
    assert number >= least, "there was nothing to kill at"


def apply_and_die(node: Node, number: int) -> bool:
    fix = node.begun()
    return killed(lambda: node.fixer(die_at_point(number)).apply(fix))


def roll_back_and_die(node: Node, number: int) -> bool:
    fix = node.fixer().apply(node.begun())
    return killed(lambda: node.fixer(die_at_point(number)).roll_back(fix))


def roll_back_is_well(node: Node) -> None:
    node.fixer().roll_back(node.newest())
    node.check_rolled_back()
    node.fixer().roll_back(node.newest())
    node.check_rolled_back()


def apply_again_is_well(node: Node) -> None:
    node.fixer().apply(node.newest())
    node.check_applied()
    roll_back_is_well(node)


def test_without_a_crash_it_is_applied_and_rolled_back(fresh):
    node = fresh()
    assert node.fixer().apply(node.begun()).state is FixState.APPLIED
    node.check_applied()
    roll_back_is_well(node)


@pytest.mark.slow
@pytest.mark.parametrize("then", [roll_back_is_well, apply_again_is_well])
def test_apply_that_is_killed_at_each_point_of_each_step(fresh, then):
    every_point(fresh, apply_and_die, then, least=5 * len(Point))


@pytest.mark.slow
def test_a_rollback_that_is_killed_at_each_point_of_each_step(fresh):
    every_point(fresh, roll_back_and_die, roll_back_is_well, least=5 * len(Point))


@pytest.mark.slow
@pytest.mark.parametrize("then", [roll_back_is_well, apply_again_is_well])
def test_apply_that_is_killed_at_each_change_of_a_file(fresh, then):
    def work(node: Node, number: int) -> bool:
        fix = node.begun()

        def dying() -> None:
            die_at_call(number)
            node.fixer().apply(fix)

        return killed(dying)

    every_point(fresh, work, then, least=30)


@pytest.mark.slow
def test_a_rollback_that_is_killed_at_each_change_of_a_file(fresh):
    def work(node: Node, number: int) -> bool:
        fix = node.fixer().apply(node.begun())

        def dying() -> None:
            die_at_call(number)
            node.fixer().roll_back(fix)

        return killed(dying)

    every_point(fresh, work, roll_back_is_well, least=30)


def test_what_is_held_by_a_file_that_was_changed_is_started_once_that_is_gone(fresh):
    node = fresh()
    fix = node.fixer().apply(node.begun())
    ours = node.root / UNITS / f"{AGENT}.d/90-exhume.conf"
    ours.write_text(ours.read_text() + "# a note\n")
    left = node.fixer().roll_back(fix)
    assert left.state is FixState.PARTLY_ROLLED_BACK
    assert [entry.mark.value for entry in left.entries] == ["kept", "kept", "undone", "undone", "undone"]
    assert (node.systemd.active()[AGENT], node.systemd.active()[LONG]) == ("inactive", "active")
    ours.unlink()
    roll_back_is_well(node)


def test_a_cpu_weight_that_was_changed_since_is_left(fresh):
    node = fresh()
    fix = node.fixer().apply(node.begun())
    node.systemd.set_cpu_weight(HOG, 50)
    left = node.fixer().roll_back(fix)
    assert left.state is FixState.PARTLY_ROLLED_BACK
    assert left.entries[-1].mark is Mark.KEPT
    assert node.systemd.cpu_weight(HOG) == 50


def test_a_cpu_weight_without_a_cpu_cgroup_is_reported(fresh):
    node = fresh()
    action = service_actions(node.controls, node.files)["cpu-weight"]
    step = node.begun().entries[-1].step
    assert action.do(step, action.look(step)).why == ""
    node.systemd.set(HOG, cpu_cgroup="no")
    assert HOG in action.do(step, action.look(step)).why
