"""Plans and outcomes of remedies, as JSON and as lines of text."""

import shlex
import textwrap
from collections.abc import Iterator
from datetime import UTC
from typing import Any

from exhume.model.remedy import Outcome, Plan, Status, Step
from exhume.model.times import format_moment
from exhume.remedy.ledger import SavedPlan

VERSION = 2
_SHOWN, _ALL_SHOWN = 3, 12
_ZOMBIES = "zombies"
# Narrower lines can't be read.
_NARROWEST = 40


def plan_json(saved: SavedPlan) -> dict[str, Any]:
    """A plan; what `exhume fix plan --json` prints."""
    plan = saved.plan
    return {
        "version": VERSION,
        "node": saved.node,
        "id": saved.id,
        "made_at": format_moment(saved.made_at, UTC, digits=3),
        "target": plan.target,
        "count": plan.count,
        "summary": plan.summary,
        "steps": [_step_json(step) for step in plan.steps],
        "refusals": list(plan.refusals),
        "not_included": [
            {"target": each.target, "why": each.why, "command": plan_command(each.target)} for each in plan.not_included
        ],
        "blind_spots": list(plan.blind_spots),
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "id": step.id,
        "title": step.title,
        "why": step.why,
        "automatic": step.automatic,
        "targets": list(step.targets),
        "commands": list(step.commands),
        "frees_at_most": step.frees_at_most,
        "cpu_seconds": round(step.cpu_seconds, 3),
        "spike": step.spike,
        "risk": step.risk.value,
        "harm": step.harm,
        "reversible": step.reversible,
        "undo": step.undo,
        "undo_commands": list(step.undo_commands),
        "dependents": list(step.dependents),
        "files": [{"path": path, "content": content} for path, content in step.files],
        "effects": [
            {"measure": effect.measure.value, "expected": effect.expected, "subject": effect.subject}
            for effect in step.effects
        ],
        "parts": [_step_json(part) for part in step.parts],
    }


def plan_command(target: str) -> str:
    """What plans for it, by its name."""
    return f"exhume fix plan {shlex.quote(target)}"


def plan_lines(plan: Plan, width: int | None = None) -> Iterator[str]:
    """A plan in lines of that width (None: unbroken, without a terminal). A step with parts is shown by its parts; a
    command or a path is never broken, so that it can be copied."""
    yield from _wrapped(plan.summary, width, "", "")
    steps = [part for step in plan.steps for part in step.parts or (step,)]
    for number, step in enumerate(steps, 1):
        yield ""
        yield from _wrapped(f"{number}. {step.title}  [{step.id}]", width, "", "   ")
        for line in _lines_of(step, frees=step.frees_at_most is not None or plan.target == _ZOMBIES):
            yield from _wrapped(line, width)
        if step.files or step.commands:
            yield from _wrapped("by hand:" if step.automatic else "what to type:", width)
        for path, content in step.files:
            yield f"     {path}"
            yield from (f"     | {line}" for line in content.splitlines())
        shown = step.commands if len(step.commands) <= _ALL_SHOWN else step.commands[:_SHOWN]
        for command in shown:
            yield f"     $ {command}"
        if len(step.commands) > len(shown):
            yield f"     … and {len(step.commands) - len(shown):,} more; --json has them all"
        yield from _wrapped(f"{'undo' if step.reversible else 'not reversible'}: {step.undo}", width)
        yield from (f"     $ {command}" for command in step.undo_commands)
    if plan.not_included:
        yield ""
        yield "not included; name it to include it:"
        for each in plan.not_included:
            yield from _wrapped(f"{each.target}: {each.why}", width, "  - ", "    ")
            yield f"     $ {plan_command(each.target)}"
    for title, lines in (("refused:", plan.refusals), ("not seen:", plan.blind_spots)):
        if lines:
            yield ""
            yield title
            for line in lines:
                yield from _wrapped(line, width, "  - ", "    ")


def _lines_of(step: Step, *, frees: bool) -> Iterator[str]:
    """The lines about a step, without its files and commands."""
    yield f"why: {step.why}"
    if step.effects:
        yield f"should change: {_effects(step)}"
    if frees:
        yield f"frees: {_frees(step)}; risk: {step.risk.value}"
        yield f"cost: {format_cost(step)}"
    else:
        yield f"risk: {step.risk.value}{'' if step.automatic else '; for a person to do'}"
    if step.dependents:
        yield f"may depend on it: {', '.join(step.dependents)}"
    if step.harm:
        yield f"harm: {step.harm}"


def _effects(step: Step) -> str:
    """The measures that should change, and for whom."""
    named = [
        f"{effect.measure.value}{f' of {effect.subject}' if effect.subject else ''} should {effect.expected}"
        for effect in step.effects
        if effect.expected != "stay"
    ]
    stay = [effect.measure.value for effect in step.effects if effect.expected == "stay"]
    return "; ".join(named + ([f"no worse: {', '.join(stay)}"] if stay else []))


def format_cost(step: Step) -> str:
    """What a step may cost, and that it is a spike."""
    if not step.automatic:
        return "a person's time"
    if step.cpu_seconds < 0.1:
        return "under 0.1 s of one core"
    if step.spike:
        return f"A CPU SPIKE: one core busy in the kernel for up to {step.cpu_seconds:.1f} s (needs --accept-cost)"
    return f"up to {step.cpu_seconds:.1f} s of one core"


def outcome_line(outcome: Outcome) -> str:
    """What came of a step."""
    step, freed = outcome.step, outcome.freed
    if outcome.status in (Status.DONE, Status.TIMED_OUT, Status.FAILED) or outcome.seconds:
        where = "" if outcome.core is None else f" on core {outcome.core}"
        cost = f"{outcome.seconds:.1f} s, {outcome.cpu_seconds:.2f} s of CPU{where}"
        numbers = "freed: not known" if freed is None else f"freed {freed:,}, {outcome.after:,} left"
        why = f" ({outcome.status.value}: {outcome.why})" if outcome.why else ""
        return f"{step.id}: {numbers}; {cost}{why}"
    return f"{step.id}: {outcome.status.value}: {outcome.why}"


def _frees(step: Step) -> str:
    return "not known" if step.frees_at_most is None else f"at most {step.frees_at_most:,}"


def _wrapped(text: str, width: int | None, first: str = "   ", then: str = "     ") -> list[str]:
    """A text in lines; a word that is longer than a line stays whole."""
    if width is None:
        return [f"{first}{text}"]
    room = max(_NARROWEST, width)
    lines = textwrap.TextWrapper(
        room, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
    return lines.wrap(text) or [first]
