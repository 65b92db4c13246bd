"""Fixes and their states, as JSON and as lines of text."""

from collections.abc import Iterator
from datetime import UTC
from typing import Any

from exhume.model.times import format_moment
from exhume.remedy.ledger import Fix, FixState, Shelf

VERSION = 2
_NEXT = {
    FixState.UNFINISHED: "exhume fix apply{where}, or exhume fix rollback {id}{where}",
    FixState.APPLIED: "exhume fix verify {id}{where}",
    FixState.ROLLING_BACK: "exhume fix rollback {id}{where}",
    FixState.PARTLY_ROLLED_BACK: "exhume fix rollback {id}{where}",
}


def fix_json(fix: Fix) -> dict[str, Any]:
    """A fix; what `exhume fix apply --json` and `exhume fix rollback --json` print."""
    return {"version": VERSION, **_fix(fix)}


def list_json(shelf: Shelf) -> dict[str, Any]:
    """What `exhume fix list --json` prints."""
    unreadable = [{"id": each.id, "path": str(each.path), "why": each.why} for each in shelf.unreadable]
    return {"version": VERSION, "fixes": [_fix(fix) for fix in shelf.fixes], "unreadable": unreadable}


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "id": fix.id,
        "node": fix.node,
        "target": fix.target,
        "summary": fix.summary,
        "state": fix.state.value,
        "root": fix.root,
        "planned_at": _moment(fix.planned_at),
        "applied_at": _moment(fix.applied_at),
        "finished_at": _moment(fix.finished_at),
        "rollback_at": _moment(fix.rollback_at),
        "steps": [
            {
                "id": entry.step.id,
                "title": entry.step.title,
                "automatic": entry.step.automatic,
                "mark": entry.mark.value,
                "why": entry.why,
                "details": dict(entry.details),
                "began_at": _moment(entry.began_at),
                "ended_at": _moment(entry.ended_at),
            }
            for entry in fix.entries
        ],
    }


def fix_lines(fix: Fix, where: str = "") -> Iterator[str]:
    """What was done, step by step; `where` is what a next command needs to find it."""
    yield f"fix {fix.id}: {fix.state.value}"
    yield f"  {fix.summary}"
    for entry in fix.entries:
        yield f"  {entry.mark.value:<8} {entry.step.title}{f' ({entry.why})' if entry.why else ''}"
        for reason in entry.details.get("left_because", ()):
            yield f"           left: {reason}"
    yield from _next(fix, where)


def list_lines(shelf: Shelf, where: str = "") -> Iterator[str]:
    """One after the other; those that can't be read come last."""
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
