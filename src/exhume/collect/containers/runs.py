"""The runs of a container: their times as engines write them, their history, and the age at which they end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from exhume.model.audit import Exit, History

_NANOS = 10**9


def nanoseconds(text: Any) -> int | None:
    """2026-01-02T03:04:05.678901234Z as nanoseconds of the wall clock; None for the year 1, which stands for never, and
    for what is no time."""
    try:
        whole, _, rest = str(text).partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        return None
    if moment.tzinfo is None or moment.year <= 1970:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * _NANOS + int((digits + "0" * 9)[:9])


# Less time than this between the first start and now gives no rate: it counts as this much.
_SHORTEST_S = 60.0
_LAST_EXITS = 10
_LAST_RUNS = 1000
# A pattern needs some runs.
_FEWEST_RUNS = 3
_ALIKE = 1.5


@dataclass(frozen=True, slots=True)
class Run:
    """Times are wall nanoseconds; `ended` is None while it runs. A run that was stopped on request did not fail."""

    started: int
    ended: int | None = None
    code: int | None = None
    failed: bool = False


def history(runs: Sequence[Run], now: int, since: int) -> History:
    """Of runs in the order of their starts, where all that started from `since` to `now` are known."""
    ended = [run for run in runs if run.ended is not None]
    # The first start is no restart; how often it restarts follows from the time since.
    span_s = max(_SHORTEST_S, (now - runs[0].started) / _NANOS) if runs else 0.0
    lasted = [(run.ended - run.started) / _NANOS for run in ended if run.ended is not None]
    bad = [run.ended for run in ended if run.failed and run.ended is not None]
    return History(
        source="runtime",
        hours=round(max(0, now - since) / _NANOS / 3600, 4),
        starts=len(runs),
        failures=sum(run.failed for run in ended),
        restarts_per_hour=round((len(runs) - 1) * 3600 / span_s, 2) if runs else 0.0,
        exits=tuple(Exit(run.ended, run.code) for run in reversed(ended[-_LAST_EXITS:])),
        age_pattern=age_pattern(lasted),
        longest_s=round(max(lasted), 1) if lasted else None,
        failing_s=round((now - bad[0]) / _NANOS, 1) if bad else None,
        restarted_at=tuple(run.started for run in runs[1:]),
    )


def age_pattern(lasted_s: Sequence[float], fewest: int | None = None) -> str:
    """How old it gets, in a sentence, where its runs are short or alike; empty where they are neither, or too few."""
    lasted = [max(0.0, each) for each in lasted_s][-_LAST_RUNS:]
    if len(lasted) < (fewest or _FEWEST_RUNS):
        return ""
    shortest, longest = min(lasted), max(lasted)
    facts = f"the last {len(lasted)} runs lasted {_spelled(shortest)} to {_spelled(longest)}"
    if longest < 1:
        return f"never a second old: {facts}"
    if longest <= 10:
        return f"always a few seconds old: {facts}"
    if longest <= 120:
        return f"never two minutes old: {facts}"
    if longest <= _ALIKE * shortest:
        return f"ends at about the same age each time: {facts}"
    return ""


def _spelled(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
