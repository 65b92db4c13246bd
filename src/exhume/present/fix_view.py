"""Views of fixes: plans, outcomes and states, as JSON and as lines of text."""

import shlex
import textwrap
from collections.abc import Iterator
from datetime import UTC
from typing import Any

from exhume.model.remedy import NotIncluded, Outcome, Plan, Status, Step
from exhume.model.times import format_moment
from exhume.present.serializer import Shape, Shapes, to_json
from exhume.remedy.ledger import Entry, Fix, FixState, SavedPlan, Shelf

VERSION = 2
_SHOWN, _ALL_SHOWN = 3, 12
_ZOMBIES = "zombies"
# Narrower text is unreadable.
_NARROWEST = 40
_NEXT = {
    FixState.UNFINISHED: "exhume fix apply{where}, or exhume fix rollback {id}{where}",
    FixState.APPLIED: "exhume fix verify {id}{where}",
    FixState.ROLLING_BACK: "exhume fix rollback {id}{where}",
    FixState.PARTLY_ROLLED_BACK: "exhume fix rollback {id}{where}",
}
_SHAPES: Shapes = {
    Step: Shape(
        omit=("action", "bytes", "params"),
        add=lambda step, _: {
            "automatic": step.automatic,
            "cpu_seconds": round(step.cpu_seconds, 3),
            "files": [{"path": path, "content": content} for path, content in step.files],
        },
    ),
    NotIncluded: Shape(add=lambda each, _: {"command": plan_command(each.target)}),
    Fix: Shape(
        omit=("machine", "boot_id", "entries", "fingerprints", "baseline"),
        add=lambda fix, _: {
            **{
                name: _moment(getattr(fix, name)) for name in ("planned_at", "applied_at", "finished_at", "rollback_at")
            },
            "state": fix.state,
            "steps": fix.entries,
        },
    ),
    Entry: Shape(
        omit=("step", "before"),
        add=lambda entry, _: {
            **{name: getattr(entry.step, name) for name in ("id", "title", "automatic")},
            "began_at": _moment(entry.began_at),
            "ended_at": _moment(entry.ended_at),
        },
    ),
}


def plan_json(saved: SavedPlan) -> dict[str, Any]:
    """The JSON of `exhume fix plan --json`."""
    made = {"version": VERSION, "node": saved.node, "id": saved.id, "made_at": _moment(saved.made_at)}
    return {**made, **to_json(saved.plan, UTC, _SHAPES)}


def fix_json(fix: Fix) -> dict[str, Any]:
    """The JSON of `exhume fix apply --json` and `exhume fix rollback --json`."""
    return {"version": VERSION, **to_json(fix, UTC, _SHAPES)}


def list_json(shelf: Shelf) -> dict[str, Any]:
    """The JSON of `exhume fix list --json`."""
    return {"version": VERSION, **to_json(shelf, UTC, _SHAPES)}


def plan_command(target: str) -> str:
    """The command that plans the fix, by its name."""
    return f"exhume fix plan {shlex.quote(target)}"


def plan_lines(plan: Plan, width: int | None = None) -> Iterator[str]:
    """The plan as lines of the given width (None: unwrapped, when there is no terminal). A step with parts is shown as
    its parts; commands and paths are never broken, so that they can be copied."""
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
    """The lines that describe a step, without its files and commands."""
    yield f"why: {step.why}"
    if step.effects:
        stay = [effect.measure.value for effect in step.effects if effect.expected == "stay"]
        changes = [
            f"{effect.measure.value}{f' of {effect.subject}' if effect.subject else ''} should {effect.expected}"
            for effect in step.effects
            if effect.expected != "stay"
        ]
        if stay:
            changes.append(f"no worse: {', '.join(stay)}")
        yield f"should change: {'; '.join(changes)}"
    if frees:
        most = "not known" if step.frees_at_most is None else f"at most {step.frees_at_most:,}"
        yield f"frees: {most}; risk: {step.risk.value}"
        yield f"cost: {format_cost(step)}"
    else:
        yield f"risk: {step.risk.value}{'' if step.automatic else '; for a person to do'}"
    if step.dependents:
        yield f"may depend on it: {', '.join(step.dependents)}"
    if step.harm:
        yield f"harm: {step.harm}"


def format_cost(step: Step) -> str:
    """The expected cost of a step; one that causes a CPU spike is labelled as such."""
    if not step.automatic:
        return "a person's time"
    if step.cpu_seconds < 0.1:
        return "under 0.1 s of one core"
    if step.spike:
        return f"A CPU SPIKE: one core busy in the kernel for up to {step.cpu_seconds:.1f} s (needs --accept-cost)"
    return f"up to {step.cpu_seconds:.1f} s of one core"


def outcome_line(outcome: Outcome) -> str:
    """The outcome of a step."""
    step, freed = outcome.step, outcome.freed
    if outcome.status in (Status.DONE, Status.TIMED_OUT, Status.FAILED) or outcome.seconds:
        where = "" if outcome.core is None else f" on core {outcome.core}"
        cost = f"{outcome.seconds:.1f} s, {outcome.cpu_seconds:.2f} s of CPU{where}"
        numbers = "freed: not known" if freed is None else f"freed {freed:,}, {outcome.after:,} left"
        why = f" ({outcome.status.value}: {outcome.why})" if outcome.why else ""
        return f"{step.id}: {numbers}; {cost}{why}"
    return f"{step.id}: {outcome.status.value}: {outcome.why}"


def _wrapped(text: str, width: int | None, first: str = "   ", then: str = "     ") -> list[str]:
    """A text wrapped into lines; a word that is longer than a line is kept whole."""
    if width is None:
        return [f"{first}{text}"]
    wrapper = textwrap.TextWrapper(max(_NARROWEST, width), first, then, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text) or [first]


def fix_lines(fix: Fix, where: str = "") -> Iterator[str]:
    """What was done, step by step; `where` holds the options that the next command needs to find the fix."""
    yield f"fix {fix.id}: {fix.state.value}"
    yield f"  {fix.summary}"
    for entry in fix.entries:
        yield f"  {entry.mark.value:<8} {entry.step.title}{f' ({entry.why})' if entry.why else ''}"
        for reason in entry.details.get("left_because", ()):
            yield f"           left: {reason}"
    yield from _next(fix, where)


def list_lines(shelf: Shelf, where: str = "") -> Iterator[str]:
    """The fixes, one after the other; unreadable ones come last."""
    if not shelf.fixes and not shelf.unreadable:
        yield "No fix was made here."
    for fix in shelf.fixes:
        when = _moment(fix.applied_at) or _moment(fix.planned_at)
        yield f"{fix.id}  {fix.state.value:<18}  {when}  {fix.target}"
        yield from _next(fix, where)
    for each in shelf.unreadable:
        yield f"{each.id}  {'unreadable':<18}  {each.why}"
        yield f"  next: exhume fix rollback {each.id}{where}, which says how it is undone by hand"


def _next(fix: Fix, where: str) -> Iterator[str]:
    if fix.state in _NEXT:
        yield f"  next: {_NEXT[fix.state].format(id=fix.id, where=where)}"


def _moment(moment: int | None) -> str | None:
    return None if moment is None else format_moment(moment, UTC, digits=3)
