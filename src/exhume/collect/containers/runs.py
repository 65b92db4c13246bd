"""The runs of a container or unit: parsing of engines' timestamps, their history, and the age at which they end.

kubelet makes a new container for each restart and keeps the last few: the attempts of a pod's container.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from exhume.collect.containers.owner import WorkloadKind
from exhume.model.audit import Exit, History, Service
from exhume.model.clock import NANOS


def nanoseconds(text: Any) -> int | None:
    """2026-01-02T03:04:05.678901234Z as nanoseconds of the wall clock; None for the year 1, which stands for never, and
    for invalid times."""
    try:
        whole, _, rest = str(text).partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        return None
    if moment.tzinfo is None or moment.year <= 1970:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * NANOS + int((digits + "0" * 9)[:9])


SIGTERM = 128 + 15
# The minimum time span for a rate; a shorter time since the first start counts as this much.
_SHORTEST_S = 60.0
_LAST_EXITS = 10
_LAST_RUNS = 1000
# A pattern needs some runs.
_FEWEST_RUNS = 3
# kubelet keeps few ended containers; with this many attempts, two ended ones are enough for a pattern.
_MANY_ATTEMPTS = 3
_ALIKE = 1.5
_AGES = (
    (1, "never a second old"),
    (10, "always a few seconds old"),
    (60, "never a minute old"),
    (120, "never two minutes old"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Times are wall nanoseconds; `ended` is None while it runs. A run that was stopped on request did not
    fail."""

    started: int
    ended: int | None = None
    code: int | None = None
    failed: bool = False

    @property
    def lasted_s(self) -> float:
        """The duration of a run that ended."""
        return ((self.ended or self.started) - self.started) / NANOS


def outcome(code: int | None, *, oom: bool, stopped: bool = False) -> str:
    """How a container ended, in systemd's terms; `stopped` means on request."""
    if oom:
        return "oom-kill"
    if code == 0:
        return "success"
    return "stopped" if stopped or code == SIGTERM else "exit-code"


def history(runs: Sequence[Run], now: int, since: int) -> History:
    """The history of runs in the order of their starts, when all starts from `since` to `now` are known."""
    ended = [run for run in runs if run.ended is not None]
    # The first start is not a restart; the restart rate is relative to the time since then.
    span_s = max(_SHORTEST_S, (now - runs[0].started) / NANOS) if runs else 0.0
    lasted = [run.lasted_s for run in ended]
    bad = [run.ended for run in ended if run.failed and run.ended is not None]
    return History(
        source="runtime",
        hours=round(max(0, now - since) / NANOS / 3600, 4),
        starts=len(runs),
        failures=sum(run.failed for run in ended),
        restarts_per_hour=round((len(runs) - 1) * 3600 / span_s, 2) if runs else 0.0,
        exits=tuple(Exit(run.ended, run.code) for run in reversed(ended[-_LAST_EXITS:])),
        age_pattern=age_pattern(lasted),
        longest_s=round(max(lasted), 1) if lasted else None,
        failing_s=round((now - bad[0]) / NANOS, 1) if bad else None,
        restarted_at=tuple(run.started for run in runs[1:]),
    )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One container of the series of attempts; times are wall nanoseconds."""

    number: int
    created: int
    run: Run | None


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts that the runtime still has, oldest first. `pod_made` is when the pod came to this node, None if
    unknown (the pod's sandbox was recreated, so the attempt numbers go back further than the sandbox)."""

    known: Sequence[Attempt] = field(default_factory=tuple)
    pod_made: int | None = None

    def history(self, now: int, since: int) -> History:
        """The history of the attempts. Removed attempts are assumed to have ended like the remaining ones."""
        runs = [attempt.run for attempt in self.known if attempt.run is not None]
        last = self.known[-1].number
        if last == len(self.known) - 1:
            return history(runs, now, max(since, self.known[0].created))
        # Attempt numbers count from the first attempt. Their time span is known if all of them fall within the time
        # range, or otherwise from the oldest remaining one.
        if self.pod_made is not None and self.pod_made >= since:
            first, began = 0, self.pod_made
        else:
            first, began = self.known[0].number, self.known[0].created
        span_s = max(_SHORTEST_S, (now - began) / NANOS)
        ended = [run for run in runs if run.ended is not None]
        failed = sum(run.failed for run in ended)
        gone = last - first + 1 - len(self.known)
        failures = failed + (gone if ended and failed == len(ended) else 0)
        return History(
            source="runtime",
            hours=round(span_s / 3600, 4),
            starts=last - first + 1,
            failures=failures,
            restarts_per_hour=round((last - first) * 3600 / span_s, 2),
            exits=tuple(Exit(run.ended, run.code) for run in reversed(ended[-_LAST_EXITS:])),
            age_pattern=age_pattern([run.lasted_s for run in ended], fewest=2 if last >= _MANY_ATTEMPTS else 3),
        )


def join_jobs(services: Iterable[Service], now: int) -> list[Service]:
    """The services, with those of a job's pods merged: a job makes a new pod after a failure, and keeps the others."""
    rows: dict[tuple[str, ...], list[Service]] = defaultdict(list)
    for service in services:
        namespace, container = service.name.partition("/")[0], service.name.rpartition("/")[2]
        of_job = (service.workload or "").startswith(f"{WorkloadKind.JOB}/")
        rows[(namespace, service.workload or "", container) if of_job else (service.id,)].append(service)
    return [row[0] if len(row) == 1 else _joined(row, now) for row in rows.values()]


def _joined(row: list[Service], now: int) -> Service:
    """The newest of the pods, with the history of all of them. Users may still refer to an earlier one."""
    row = sorted(row, key=lambda service: service.created or 0)
    known = [service.history for service in row if service.history is not None]
    ends = [each for history in known for each in history.exits]
    ends.sort(key=lambda each: -(each.at or 0))
    starts, seconds = sum(each.starts for each in known), max(1, now - (row[0].created or now)) / NANOS
    past = History(
        source="runtime",
        hours=round(seconds / 3600, 4),
        starts=starts,
        failures=sum(each.failures for each in known),
        restarts_per_hour=round(max(0, starts - 1) * 3600 / max(_SHORTEST_S, seconds), 2),
        exits=tuple(ends[:_LAST_EXITS]),
        restarted_at=tuple(service.started for service in row[1:] if service.started is not None),
    )
    # The newest may not have ended yet.
    last = row[-1].last_exit or next(iter(past.exits), None)
    return replace(row[-1], history=past, last_exit=last, earlier=tuple(service.name for service in row[:-1]))


def age_pattern(lasted_s: Sequence[float], fewest: int = _FEWEST_RUNS) -> str:
    """A sentence about the age that runs reach; empty if there are too few runs."""
    lasted = sorted(max(0.0, each) for each in lasted_s[-_LAST_RUNS:])
    if len(lasted) < fewest:
        return ""
    shortest, longest = lasted[0], lasted[-1]
    facts = f"the last {len(lasted)} runs lasted {_spelled(shortest)} to {_spelled(longest)}"
    for limit, label in _AGES:
        if longest < limit:
            return f"{label}: {facts}"
    if longest <= _ALIKE * shortest:
        return f"ends at about the same age each time: {facts}"
    return f"{facts}, half of them less than {_spelled(lasted[len(lasted) // 2])}"


def _spelled(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.{int(unit == 'h')}f} {unit}"
    return f"{seconds:.{1 if seconds >= 1 else 2}f} s"
