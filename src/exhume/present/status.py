"""The recorder's status: the text of a tick while it runs, and the summary when it ends."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo

from exhume.model.progress import RecordingSummary, TickSummary
from exhume.model.tables import Columns
from exhume.model.text import count, duration, percent, size
from exhume.model.times import format_clock

# Hard and soft interrupts have one colour; see the palette.
_STATES = (("user", ("user", "nice")), ("system", ("system",)), ("softirq", ("irq", "softirq")), ("steal", ("steal",)))


@dataclass(frozen=True, slots=True)
class CoreNow:
    """One core in the last tick: its busy share in permille, and the state that took most of it."""

    cpu: int
    permille: int
    state: str


def cores_now(cpu: Columns | None) -> list[CoreNow]:
    """The tick's cores, in order."""
    if cpu is None:
        return []
    columns = {name: _plain(cpu[name]) for _, parts in _STATES for name in parts}
    found = []
    for row, core in enumerate(_plain(cpu["cpu"])):
        shares = {state: sum(columns[part][row] for part in parts) for state, parts in _STATES}
        found.append(CoreNow(core, min(1000, sum(shares.values())), max(shares, key=shares.__getitem__)))
    return sorted(found, key=lambda now: now.cpu)


def tick_parts(summary: TickSummary) -> list[str]:
    """Rate, cost and losses of a tick."""
    seconds = max(summary.tick.seconds, 1e-9)
    return [
        f"{summary.rate_hz} Hz",
        f"{summary.samples / seconds:,.0f} samples/s",
        f"{summary.lost:,} samples lost",
        f"cost {percent(summary.own_cpu)} of one core",
        f"{size(summary.rss_bytes)} memory",
        f"{size(summary.written_bytes / seconds)}/s written",
    ]


def tick_events(summary: TickSummary, zone: tzinfo | None) -> Iterator[str]:
    """The incidents and losses of a tick."""
    when = format_clock(summary.tick.wall, zone)
    for text in summary.incidents:
        yield f"{when} incident: {text}"
    for text in summary.losses:
        yield f"{when} loss: {text}"


def summary_lines(summary: RecordingSummary, directory: str, on_disk: int) -> Iterator[str]:
    """What was recorded, what was lost, what it cost. More is written on the way than is left on disk."""
    span = duration(max(0, summary.until - summary.since))
    samples = f"{count(summary.samples, 'sample')} at {summary.rate_hz} Hz" if summary.rate_hz else "no stack samples"
    incidents = count(summary.incidents, "incident")
    yield f"recorded {span} into {directory}: {samples}, {incidents}, {size(on_disk)} on disk"
    lost = ", ".join(f"{name} {number:,}" for name, number in summary.losses.items())
    yield f"lost: {lost or 'nothing'}"
    yield (
        f"cost: {percent(summary.own_cpu)} of one core, {size(summary.peak_rss_bytes)} of memory at most, "
        f"{size(summary.written_bytes)} written while recording"
    )


def _plain(column: object) -> list[int]:
    """A column as a list of ints, whether it is a list or a numpy array."""
    tolist = getattr(column, "tolist", None)
    return tolist() if tolist is not None else list(column)  # type: ignore[call-overload, no-any-return]
