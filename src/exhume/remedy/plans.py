"""Plans that were made and may be applied later: with the state of the node that each was made from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.remedy import Plan
from exhume.remedy.documents import DocumentError, plan_from, read_document, write_document
from exhume.remedy.ledger import Entry, Fix, check_id

VERSION = 1
_PLANS, _LAST = "plans", "last.json"
# Plans that were never applied are of no use for long.
_KEPT = 50
OLDEST_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan, where and when (wall nanoseconds) it was made, and the fingerprint of everything that it changes."""

    id: str
    plan: Plan
    node: str
    machine: str
    root: str
    boot_id: str
    made_at: int
    fingerprints: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def without(self, action: str) -> "SavedPlan":
        """The same with no step of this kind."""
        steps = tuple(step for step in self.plan.steps if step.action != action)
        return replace(self, plan=replace(self.plan, steps=steps))

    def begun(self, baseline: Mapping[str, Any] | None = None) -> Fix:
        """The fix that it becomes, with nothing done yet."""
        return Fix(
            id=self.id,
            node=self.node,
            machine=self.machine,
            root=self.root,
            boot_id=self.boot_id,
            target=self.plan.target,
            summary=self.plan.summary,
            planned_at=self.made_at,
            entries=tuple(Entry(step) for step in self.plan.steps),
            fingerprints=self.fingerprints,
            baseline=baseline,
        )

    def stale(self, boot_id: str, machine: str, now: int, found: Mapping[str, Mapping[str, str]]) -> list[str]:
        """What changed since it was made, in sentences; none: it still holds."""
        if machine != self.machine:
            return ["it was made for another machine"]
        said = []
        if boot_id != self.boot_id:
            said.append("the node was booted since")
        age = (now - self.made_at) / NANOS
        if age > OLDEST_S or age < -60:
            said.append(f"it is {age / 3600:.0f} hours old")
        return said + changed(self.fingerprints, found)


def changed(then: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """How fingerprints differ, in sentences."""
    said = []
    for target, was in then.items():
        has = now.get(target)
        if has is None:
            said.append(f"{target} is gone")
            continue
        said += [
            f"{target}: {key.replace('_', ' ')} was {_short(was.get(key))}, and is {_short(has.get(key))} now"
            for key in sorted(was.keys() | has.keys())
            if was.get(key, "") != has.get(key, "")
        ]
    return said


def save_plan(place: Path, saved: SavedPlan) -> None:
    """Keep it, as the last one too. Raises DocumentError."""
    content = {"version": VERSION, **asdict(saved)}
    directory = place / _PLANS
    write_document(directory / f"{saved.id}.json", content)
    write_document(directory / _LAST, content)
    older = sorted(path for path in directory.glob("*.json") if path.name != _LAST)[:-_KEPT]
    for path in older:
        path.unlink(missing_ok=True)


def last_plan(place: Path) -> SavedPlan:
    """The newest one. Raises UsageError where there is none, and DocumentError where it can't be understood."""
    return _read(place / _PLANS / _LAST)


def plan_of(place: Path, id_: str) -> SavedPlan:
    """The plan that a fix was made by, as long as it is kept. Raises as `last_plan`."""
    return _read(place / _PLANS / f"{check_id(id_)}.json")


def _read(path: Path) -> SavedPlan:
    try:
        content = read_document(path, VERSION)
    except FileNotFoundError:
        raise UsageError(f"there is no plan in {path.parent}; make one with exhume fix plan") from None
    try:
        known = {key: value for key, value in content.items() if key != "version"}
        return SavedPlan(**{**known, "id": check_id(known["id"]), "plan": plan_from(known["plan"])})
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise DocumentError(f"{path} is not what exhume wrote ({error}); make a new plan") from None


def _short(value: str | None) -> str:
    if not value:
        return "nothing"
    return value if len(value) <= 80 else f"{value[:77]}…"
