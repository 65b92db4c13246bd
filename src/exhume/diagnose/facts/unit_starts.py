"""Find the systemd unit that starts a container again and again, from the recorded starts and ends of both.

A container carries no mark of the unit that starts it, and Docker knows none. But each of its runs then lies within
one run of the unit, shortly after its start and shortly before its end. Another unit may be in step with a container
as well, for instance one that fails when the container is gone, so that alone is not enough. Either a client of a
container engine that names the container ran in the unit, or the unit ended with the container's own exit code, one
that few programs have, and each container was a new one: a restart policy starts the same container again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from exhume.collect.containers.unit_starts import starts_in
from exhume.diagnose import messages
from exhume.diagnose.catalogue import thresholds
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.lifetimes import DIED, UNIT_ENDED
from exhume.diagnose.facts.owners import is_shared_unit
from exhume.model.clock import NANOS
from exhume.model.finding import Entity, EntityKind, Evidence

CONTAINER_STARTED, UNIT_STARTED = "container-start", "unit-started"
_LEAST_ID = 12


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a unit or a container: wall times, its exit code if known, and the container's id."""

    start: int
    end: int
    code: float | None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class UnitStarter:
    """The unit that starts a container. `times` is how many runs of the two were in step, `code` the exit code that
    they share (None if they differ), `command` the command line of a client in the unit that names the container (None
    if no client was recorded)."""

    unit: str
    times: int
    code: int | None
    command: str | None
    evidence: tuple[Evidence, ...]

    @property
    def entity(self) -> Entity:
        return Entity(EntityKind.UNIT, self.unit, self.unit)

    def __str__(self) -> str:
        return messages.render("owner.unit", {"name": self.unit})


def find_starter(case: Case, name: str | None, ids: Collection[str]) -> UnitStarter | None:
    """Find the unit that starts the container with this name, or if it has none, the containers with these ids; None
    if there is no such unit or more than one."""
    events = case.recorded("events", _limit("seconds"))
    of_containers = events.matching("kind", CONTAINER_STARTED, DIED)
    if name is not None:
        of_containers = of_containers.matching("container_name", name)
    else:
        of_containers = of_containers.matching("container", *sorted(ids))
    if any(pod is not None for pod in of_containers.texts("pod").tolist()):
        # kubelet starts the containers of a pod.
        return None
    runs = _runs(of_containers, "container", CONTAINER_STARTED)
    if len(runs) < _limit("least"):
        return None
    of_units = events.matching("kind", UNIT_STARTED, UNIT_ENDED)
    found = []
    for unit in sorted({each for each in of_units.texts("comm").tolist() if each and not is_shared_unit(each)}):
        rows = of_units.matching("comm", unit)
        pairs = _in_step(_runs(rows, "comm", UNIT_STARTED), runs)
        if pairs:
            code, command = _shared_code(pairs), _client(case, unit, name, {run.container for run in runs})
            known_ids = {run.container for _, run in pairs}
            if command is not None or (code is not None and len(known_ids) == len(pairs)):
                quotes = (_quote_ends(rows, UNIT_ENDED, "comm", unit), _quote_ends(of_containers, DIED, *_key(name)))
                evidence = tuple(each for each in quotes if each is not None)
                found.append(UnitStarter(unit, len(pairs), code, command, evidence))
    certain = [each for each in found if each.command is not None] or found
    return certain[0] if len(certain) == 1 else None


def _limit(name: str) -> float:
    return float(thresholds("unit-starts")[name])


def _key(name: str | None) -> tuple[str, str] | tuple[()]:
    return ("container_name", name) if name is not None else ()


def _quote_ends(rows: Rows, kind: str, *match: str) -> Evidence | None:
    """Evidence of how often it ended; None for containers without a common name, which no condition selects."""
    if not match:
        return None
    column, value = match
    return quote_column(rows.matching("kind", kind), "kind", "count", match=(("kind", kind), (column, value)))


def _runs(rows: Rows, column: str, started: str) -> list[Run]:
    """The complete runs in rows of starts and ends, in order of their starts. `column` tells one thing from another."""
    begun: dict[str, int] = {}
    runs = []
    for wall, key, kind, code in sorted(rows.listed("wall", column, "kind", "value"), key=lambda row: row[0]):
        if key is None:
            continue
        if kind == started:
            begun[key] = wall
        elif key in begun:
            runs.append(Run(begun.pop(key), wall, code, key if column == "container" else None))
    return sorted(runs, key=lambda run: run.start)


def _in_step(units: list[Run], containers: list[Run]) -> list[tuple[Run, Run]]:
    """The runs of a unit, each with the one run of the container within it; empty if the two are not in step: if too
    many runs of either have no partner."""
    few, many = sorted((len(units), len(containers)))
    if few < _limit("least") or many - few - 1 > _limit("alone_part") * few:
        return []
    pairs = []
    starts = [run.start for run in containers]
    for unit in units:
        inside = containers[bisect_left(starts, unit.start) : bisect_right(starts, unit.end)]
        if len(inside) == 1 and _is_close(unit, inside[0]):
            pairs.append((unit, inside[0]))
    # A run at the edge of the time may be incomplete.
    alone = many - len(pairs) - 1
    if len(pairs) < _limit("least") or alone > _limit("alone_part") * len(pairs):
        return []
    return pairs


def _is_close(unit: Run, container: Run) -> bool:
    before, after = (container.start - unit.start) / NANOS, (unit.end - container.end) / NANOS
    return before <= _limit("start_s") and -_limit("early_s") <= after <= _limit("end_s")


def _shared_code(pairs: Iterable[tuple[Run, Run]]) -> int | None:
    """The exit code with which both ended each time; None if it is not always the same, or if many programs have it."""
    codes = {code for pair in pairs for code in (pair[0].code, pair[1].code)}
    code = codes.pop() if len(codes) == 1 else None
    return None if code is None or code in thresholds("unit-starts")["common_codes"] else int(code)


def _client(case: Case, unit: str, name: str | None, ids: Collection[str | None]) -> str | None:
    """The command line of the newest process in the unit that starts the container by its name or id."""
    rows = case.recorded("processes", _limit("client_seconds")).containing("cgroup", f"/{unit}")
    for cgroup, cmdline in reversed(rows.listed("cgroup", "cmdline")):
        if cmdline and cgroup and unit in cgroup.split("/"):
            named = {each for start in starts_in(cmdline.split()) for each in start.names}
            if name in named or any(_is_id(each, number) for each in named for number in ids):
                return str(cmdline)
    return None


def _is_id(name: str, number: str | None) -> bool:
    """Whether a name is a container id, in full or short."""
    return number is not None and len(name) >= _LEAST_ID and number.startswith(name)
