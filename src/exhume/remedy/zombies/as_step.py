"""Freeing zombies as one step of a fix: planned anew when its turn comes, after what leaks them was stopped."""

from dataclasses import dataclass, replace
from typing import Any

from exhume.model.remedy import Plan, Step
from exhume.model.text import count
from exhume.remedy.services.actions import Before
from exhume.remedy.services.controls import ActionFailed
from exhume.remedy.zombies.apply import Applier, Wishes
from exhume.remedy.zombies.plan import make_plan

FREE_ZOMBIES = "free-zombies"


def as_step(plan: Plan) -> Step | None:
    """A plan against zombies as one step; None where nothing of it is for us to do."""
    ours = [step for step in plan.steps if step.automatic]
    if not ours:
        return None
    return Step(
        id=FREE_ZOMBIES,
        title=f"free the zombies: {', '.join(step.id for step in ours)}",
        why=plan.summary,
        action=FREE_ZOMBIES,
        targets=tuple(dict.fromkeys(target for step in ours for target in step.targets)),
        commands=tuple(command for step in ours for command in step.commands),
        frees_at_most=plan.count,
        cpu_seconds=max(step.cpu_seconds for step in ours),
        spike=any(step.spike for step in ours),
        risk=max((step.risk for step in ours), key=list(type(ours[0].risk)).index),
        harm="; ".join(dict.fromkeys(step.harm for step in ours if step.harm)),
        reversible=all(step.reversible for step in ours),
        undo="not needed: what was changed for a while is put back at the end, and nothing is lost",
    )


@dataclass(frozen=True, slots=True)
class FreeZombies:
    """The action of that step."""

    applier: Applier
    wishes: Wishes

    def look(self, step: Step) -> dict[str, Any]:
        return {"zombies": self.applier.count()}

    def do(self, step: Step, before: Before) -> str:
        plan = make_plan(self.applier.watch.situation())
        automatic = tuple(each for each in plan.steps if each.automatic)
        report = self.applier.apply(replace(plan, steps=automatic), self.wishes)
        if report.interrupted:
            raise ActionFailed("it was interrupted; what it had changed for a while is undone")
        if report.before is None or report.after is None:
            return "zombies can't be counted here"
        left = f"; {report.left_because[0]}" if report.left_because else ""
        return f"{count(max(0, report.before - report.after), 'zombie')} freed, {report.after:,} left{left}"

    def undo(self, step: Step, before: Before) -> str:
        return "freed memory needs no undoing"
