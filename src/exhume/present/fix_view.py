"""Plans and reports of remedies, as JSON and as lines for people."""

import textwrap
from collections.abc import Iterator
from typing import Any

from exhume.model.remedy import Outcome, Plan, Report, Status, Step
from exhume.present.words import count

VERSION = 1
_SHOWN = 3
_WIDTH = 110


def plan_json(plan: Plan, node: str) -> dict[str, Any]:
    """A plan; what `exhume fix plan --json` prints."""
    return {
        "version": VERSION,
        "node": node,
        "target": plan.target,
        "count": plan.count,
        "summary": plan.summary,
        "steps": [_step_json(step) for step in plan.steps],
        "blind_spots": list(plan.blind_spots),
        "applied": None,
    }


def report_json(report: Report, node: str) -> dict[str, Any]:
    """The same with what was done."""
    return plan_json(report.plan, node) | {
        "applied": {
            "before": report.before,
            "after": report.after,
            "interrupted": report.interrupted,
            "outcomes": [
                {
                    "id": outcome.step.id,
                    "status": outcome.status.value,
                    "before": outcome.before,
                    "after": outcome.after,
                    "freed": outcome.freed,
                    "seconds": round(outcome.seconds, 3),
                    "cpu_seconds": round(outcome.cpu_seconds, 3),
                    "core": outcome.core,
                    "why": outcome.why,
                }
                for outcome in report.outcomes
            ],
            "left_because": list(report.left_because),
        }
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
    }


def plan_lines(plan: Plan) -> Iterator[str]:
    """A plan to read."""
    yield plan.summary
    for number, step in enumerate(plan.steps, 1):
        yield ""
        yield f"{number}. {step.title}  [{step.id}]"
        yield from _indented(f"why: {step.why}")
        yield from _indented(f"frees: {_frees(step)}; risk: {step.risk.value}")
        yield from _indented(f"cost: {cost_words(step)}")
        if step.harm:
            yield from _indented(f"harm: {step.harm}")
        yield from _indented(f"{'undo' if step.reversible else 'not reversible'}: {step.undo}")
        for command in step.commands[:_SHOWN]:
            yield f"     $ {command}"
        if len(step.commands) > _SHOWN:
            yield f"     … and {len(step.commands) - _SHOWN:,} more; --json has them all"
    if plan.blind_spots:
        yield ""
        yield "not seen:"
        for spot in plan.blind_spots:
            yield f"  - {spot}"


def cost_words(step: Step) -> str:
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


def report_lines(report: Report) -> Iterator[str]:
    """Before, after, and what is left and why."""
    if report.before is None or report.after is None:
        yield "before and after could not be counted"
    else:
        freed = max(0, report.before - report.after)
        yield f"before {report.before:,}, after {report.after:,}: {count(freed, 'zombie')} freed"
    if report.interrupted:
        yield "it was interrupted; what it had changed for a while is undone, and it can be run again"
    if report.left_because:
        yield "what is left, and why:"
        for reason in report.left_because:
            yield from textwrap.wrap(reason, _WIDTH, initial_indent="  - ", subsequent_indent="    ")


def _frees(step: Step) -> str:
    return "not known" if step.frees_at_most is None else f"at most {step.frees_at_most:,}"


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="   ", subsequent_indent="     ", break_on_hyphens=False)
