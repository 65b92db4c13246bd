"""The steps that stop a unit of systemd and keep it from being started: by a drop-in of ours, or a mask."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from exhume.model.remedy import Risk, Step
from exhume.model.text import listed
from exhume.remedy.services.actions import HOLD_UNITS, MASK_UNITS, STOP_UNITS
from exhume.remedy.services.chosen import Chosen
from exhume.remedy.services.own_files import (
    NOWHERE,
    OwnFiles,
    directory_of,
    drop_in_of,
    drop_in_text,
    has_room_for_drop_in,
    mask_of,
)

_MARK = re.compile(r"# Made by exhume fix, (\S+), at ")


@dataclass(frozen=True, slots=True)
class UnitCase:
    """A unit, all that has to be stopped for it (what triggers it comes first), what would be stopped along, who wants
    it, and which of its files changed since systemd read them."""

    chosen: Chosen
    units: tuple[str, ...]
    along: tuple[str, ...]
    fix: str
    when: str
    wanting: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.chosen.service.id

    @property
    def news(self) -> str:
        """What a reload brings beside our own file; nothing where all was read."""
        if not self.unread:
            return ""
        return (
            f"; files of {listed(self.unread)} changed since systemd read them: the reload takes them up, and what is "
            "started again later is the new one"
        )


def stop_step(case: UnitCase, running: tuple[str, ...]) -> Step:
    """Stop what runs of it, gracefully."""
    names = " ".join(map(shlex.quote, running))
    again = " ".join(map(shlex.quote, (*running, *case.along)))
    return Step(
        id=f"stop:{case.name}",
        title=f"stop {listed(running)}" + (f", and with it {listed(case.along)}" if case.along else ""),
        why=case.chosen.why,
        action=STOP_UNITS,
        targets=running,
        commands=(f"systemctl stop -- {names}",),
        risk=Risk.HIGH if case.along else case.chosen.risk,
        harm=case.chosen.harm,
        undo="it is started again",
        undo_commands=(f"systemctl start -- {again}",),
        dependents=case.along,
        effects=case.chosen.effects,
    )


def stop_for_good(step: Step) -> Step:
    """The same for a unit that was made at run time: it goes when it is stopped, and whoever made it has to make it
    anew."""
    undo = "whoever made it at run time has to make it anew: it is gone when it ends"
    return replace(step, reversible=False, undo=undo, undo_commands=())


def hold_step(case: UnitCase, files: OwnFiles, undone_by: Mapping[str, str]) -> tuple[Step | None, str]:
    """Keep it from being started; or why that can't be. `undone_by` are files that would make our drop-in useless."""
    for path in undone_by.values():
        return _mask_step(case, files, f"{path} takes all conditions away, so a drop-in would not hold it")
    if not all(map(has_room_for_drop_in, case.units)):
        return _mask_step(case, files, "its name is too long for a drop-in")
    for unit in case.units:
        if why := files.drop_in_obstacle(unit):
            holder = _MARK.match(files.drop_in_now(unit))
            if holder:
                return (
                    None,
                    f"{unit} is held back already by fix {holder[1]}; exhume fix rollback {holder[1]} undoes it",
                )
            return None, f"{unit} can't be held back: {why}"
    texts = tuple((drop_in_of(unit), drop_in_text(unit, case.fix, case.when)) for unit in case.units)
    typed: list[str] = []
    for unit, (path, text) in zip(case.units, texts, strict=True):
        lines = " ".join(shlex.quote(line) for line in text.splitlines() if not line.startswith("#"))
        typed.append(f"mkdir -p -- {shlex.quote(directory_of(unit))}")
        typed.append(f"printf '%s\\n' {lines} > {shlex.quote(path)}")
    files_words = " ".join(shlex.quote(path) for path, _ in texts)
    step = Step(
        id=f"hold-back:{case.name}",
        title=f"keep {listed(case.units)} from being started, also at boot, by a drop-in of exhume's own",
        why="what is only stopped is started again at the next boot, or by what asks for it",
        action=HOLD_UNITS,
        targets=case.units,
        commands=(*typed, "systemctl daemon-reload"),
        risk=case.chosen.risk,
        harm=f"{_wanting(case)} without it{case.news}",
        undo="the files are removed again",
        undo_commands=(f"rm -- {files_words}", "systemctl daemon-reload"),
        dependents=case.along,
        files=texts,
        effects=case.chosen.effects,
    )
    return step, ""


def _wanting(case: UnitCase) -> str:
    if not case.wanting:
        return "units that want it start"
    return f"{listed(case.wanting)} {'wants it, and starts' if len(case.wanting) == 1 else 'want it, and start'}"


def _mask_step(case: UnitCase, files: OwnFiles, reason: str) -> tuple[Step | None, str]:
    """Where a drop-in is of no use."""
    for unit in case.units:
        if why := files.mask_obstacle(unit):
            return None, f"{unit} can't be held back: {reason}, and {why}, so no mask fits"
    links = tuple(mask_of(unit) for unit in case.units)
    step = Step(
        id=f"mask:{case.name}",
        title=f"mask {listed(case.units)}, also for the next boot",
        why=f"what is only stopped is started again; {reason}",
        action=MASK_UNITS,
        targets=case.units,
        commands=(*(f"ln -s -- {NOWHERE} {shlex.quote(link)}" for link in links), "systemctl daemon-reload"),
        risk=case.chosen.risk,
        harm=f"units that require it can't be started{case.news}",
        undo="the links are removed again",
        undo_commands=(f"rm -- {' '.join(map(shlex.quote, links))}", "systemctl daemon-reload"),
        dependents=case.along,
        files=tuple((link, f"a link to {NOWHERE}") for link in links),
        effects=case.chosen.effects,
    )
    return step, ""
