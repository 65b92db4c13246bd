"""Zombies in the terminal: the verdict, the counts, what holds them and what made them."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.diagnose.facts.leaks import Leaker
from exhume.diagnose.zombie_report import Explanation, ZombieReport
from exhume.diagnose.zombies import GROWING, MANY, SAMPLING, UNKNOWN, WELL, Growth, hours_until
from exhume.model.clock import NANOS
from exhume.model.text import count, duration, listing, percent, size
from exhume.model.times import format_moment
from exhume.model.zombies import HierarchyCensus, ParentResidual, PinKind
from exhume.present.events_view import visible
from exhume.present.terminal.console import fitted
from exhume.present.zombies_view import PinPattern, containers_of, pin_patterns, recorded_below

_BADGES = {WELL: "#009e73", GROWING: "#e69f00", MANY: "#d55e00", UNKNOWN: "#56b4e9"}
_BOLD, _DIM, _PLAIN = Style(bold=True), Style(dim=True), Style()
_NOTHING = "–"
PARENTS_SHOWN, PATTERNS_SHOWN, LEAKERS_SHOWN, HOLDERS_SHOWN = 8, 10, 8, 4

_KINDS = {
    PinKind.FILE: "cached file",
    PinKind.MAPPED: "mapped file",
    PinKind.MLOCKED: "locked in memory",
    PinKind.SHMEM: "tmpfs, shared memory",
    PinKind.ANON: "process memory",
    PinKind.SWAP: "swapped tmpfs",
    PinKind.METADATA: "filesystem metadata",
}

Row = tuple[str, ...]


def print_zombies(terminal: Console, report: ZombieReport, zone: tzinfo | None) -> None:
    """The whole report."""
    for line in report_lines(report, zone):
        for part in fitted(terminal, line):
            terminal.print(part)


def report_lines(report: ZombieReport, zone: tzinfo | None) -> Iterator[Text]:
    """The report, line by line."""
    yield verdict_line(report)
    yield Text()
    yield from counts_lines(report)
    yield from _findings(report, zone)
    if report.explanation is not None:
        yield from _parents(report.explanation)
        yield from _pins(report.explanation)
        yield from _leakers(report, report.explanation, zone)
    yield from _blind_spots(report)


def format_growth(growth: Growth | None) -> str:
    """`+409/h`; a sampling too short to see anything slow says so by its bound."""
    if growth is None:
        return _NOTHING
    if growth.source == SAMPLING and growth.first == growth.last:
        return f"none in {growth.seconds:.1f} s"
    return f"{growth.per_hour:+,.0f}/h" if abs(growth.per_hour) >= 0.5 else "flat"


def verdict_line(report: ZombieReport) -> Text:
    verdict = report.verdict
    line = Text()
    line.append(f" {verdict.level.upper()} ", Style(color="#000000", bgcolor=_BADGES[verdict.level], bold=True))
    line.append(f" {verdict.summary}", _BOLD)
    return line


def counts_lines(report: ZombieReport) -> Iterator[Text]:
    shown = [each for each in report.census.hierarchies if each.controller == "memory" or each.dying or each.note]
    others = [each for each in report.census.hierarchies if each not in shown]
    rows = [_count_row(each, report.growth.get((each.name, each.controller))) for each in shown]
    yield from _table(("hierarchy", "kernel", "visible", "zombies", "memory held", "growth"), rows, right=range(1, 6))
    if others:
        names = listing([f"{each.controller} v{each.version}" for each in others], 4)
        yield Text(f"  no zombies in {names}", _DIM)
    memory = report.census.memory
    held = memory.memory_bytes if memory else None
    kernel = (report.census.slab_bytes or 0) + (report.census.percpu_bytes or 0)
    if memory and held and kernel:
        yield Text(
            f"  ~ estimated from what one costs; unreclaimable slab and per-CPU memory of this kernel: {size(kernel)}, "
            f"so {percent(min(1.0, held / kernel), 0)} of it",
            _DIM,
        )


def _count_row(each: HierarchyCensus, growth: Growth | None) -> Row:
    held = _NOTHING
    if each.memory_bytes is not None:
        held = f"{'' if each.memory_measured else '~'}{size(each.memory_bytes)}" if each.memory_bytes else "none"
    name = each.name if each.name in (each.controller, "unified") else f"{each.name} ({each.controller})"
    if each.name == "unified":
        name = f"unified: {each.controller}"
    return (
        f"{name}, v{each.version}",
        *(_NOTHING if number is None else f"{number:,}" for number in (each.kernel, each.visible, each.dying)),
        held,
        format_growth(growth),
    )


def _findings(report: ZombieReport, zone: tzinfo | None) -> Iterator[Text]:
    lines = list(report.verdict.reasons)
    memory = report.census.memory
    growth = report.growth.get((memory.name, memory.controller)) if memory else None
    if growth is not None and growth.source == SAMPLING:
        seen = NANOS * 3600 / max(growth.seconds * NANOS, 1)
        lines.append(
            f"growth is from a sampling of {growth.seconds:.1f} s, which sees no pace below {seen:,.0f} an hour; "
            "a recording of a minute or more would (exhume record)"
        )
    elif growth is not None:
        # The last count may be an older one: each end goes by the lower of two.
        until = growth.since + round(growth.seconds * NANOS)
        since, last = (format_moment(wall, zone, digits=0) for wall in (growth.since, until))
        lines.append(f"growth is from the recording: {growth.first:,} at {since}, {growth.last:,} at {last}")
    if memory is not None and memory.dying is not None and growth is not None:
        hours = hours_until(memory.dying, growth, report.verdict.thresholds)
        if hours is not None and not report.verdict.is_finding and growth.source != SAMPLING and hours < 24 * 365:
            lines.append(f"at this pace there would be {report.verdict.thresholds.many:,} in {hours / 24:,.0f} days")
    thresholds = report.verdict.thresholds
    lines.append(
        f"thresholds: {thresholds.many:,} are many (precedent: a cloud vendor's advice); growth counts when it gets "
        f"there within {thresholds.horizon_hours} h; up to {thresholds.normal} are normal (a fresh boot has some 20)"
    )
    yield Text()
    for line in lines:
        yield Text(f"  {line}", _DIM if line is lines[-1] else _PLAIN)


def _parents(explanation: Explanation) -> Iterator[Text]:
    yield from _heading("held below", "what removed cgroups still hold, by their closest live parent")
    if not explanation.parents:
        yield Text("  no cgroup is seen to have anything charged to removed children", _PLAIN)
        return
    below = recorded_below(explanation)
    rows = [_parent_row(parent, below[parent.name]) for parent in explanation.parents[:PARENTS_SHOWN]]
    header = ("parent", "zombies", "file", "metadata", "tmpfs", "anon", "swap", "unknown", "mapped", "locked")
    # Columns without a value are left out, except the parent.
    used = [0, *(i for i in range(1, len(header)) if any(row[i] != _NOTHING for row in rows))]
    yield from _table([header[i] for i in used], [tuple(row[i] for i in used) for row in rows], range(1, len(used)))
    if len(explanation.parents) > PARENTS_SHOWN:
        yield Text(f"  and {count(len(explanation.parents) - PARENTS_SHOWN, 'more parent')}", _DIM)
    if any(parent.unclassified_bytes for parent in explanation.parents):
        yield Text("  unknown: in the page counters, but missing from this kernel's memory.stat", _DIM)
    if any(parent.version == 2 for parent in explanation.parents):
        yield Text("  on v2 pages of the parent itself are among these: they are at most so much", _DIM)


def _parent_row(parent: ParentResidual, recorded: int) -> Row:
    amounts = (
        parent.file_bytes - parent.metadata_bytes,
        parent.metadata_bytes,
        parent.shmem_bytes,
        parent.anon_bytes,
        parent.swap_bytes,
        parent.unclassified_bytes,
        parent.mapped_bytes,
        parent.unevictable_bytes,
    )
    # v1 doesn't count them by parent; a recording knows at least some.
    zombies = f"{parent.dying:,}" if parent.dying is not None else f"≥ {recorded:,}" if recorded else _NOTHING
    return (
        _short(parent.name),
        zombies,
        *(size(amount) if amount else _NOTHING for amount in amounts),
    )


def _pins(explanation: Explanation) -> Iterator[Text]:
    pins = explanation.pins
    if not pins.files and not pins.expected_bytes:
        return
    found = sum(file.bytes for file in pins.files if file.kind is not PinKind.SWAP)
    share = (
        f"{percent(min(1.0, found / pins.expected_bytes), 0)} of what is held was found in files; "
        if pins.expected_bytes
        else ""
    )
    looked = f"{count(pins.looked_at, 'file')} looked at in {pins.seconds:.1f} s"
    yield from _heading("likely pins", f"{share}{looked}")
    patterns = pin_patterns(pins.files)
    shown = _of_each_parent(patterns)
    if shown:
        names = {parent.path: parent.name for parent in explanation.parents}
        rows = [_pattern_row(pattern, names.get(pattern.parent, _NOTHING)) for pattern in shown]
        yield from _table(("kind", "files", "held", "below", "where"), rows, right=(1, 2))
    if len(patterns) > len(shown):
        rest = [pattern for pattern in patterns if pattern not in shown]
        more = f"{count(sum(len(p.files) for p in rest), 'more file')} with {size(sum(p.bytes for p in rest))}"
        yield Text(f"  and {more}; --json names {'them' if len(pins.files) <= 100 else 'the first hundred'}", _DIM)
    yield from _holders(patterns)


def _holders(patterns: Sequence[PinPattern]) -> Iterator[Text]:
    """The processes that keep the files in memory: locked before mapped, by name."""
    processes = {pid: how for pattern in patterns for pid, how in pattern.holders.items()}
    groups: dict[tuple[str, str], list[int]] = {}
    for pid, (comm, how) in sorted(processes.items()):
        groups.setdefault((how, visible(comm)), []).append(pid)
    for manner in sorted({how for how, _ in groups}, key=lambda how: how != "mlocked"):
        named = {comm: pids for (how, comm), pids in groups.items() if how == manner}
        holders = [
            f"{comm} ({pids[0] if len(pids) == 1 else count(len(pids), 'process', 'processes')})"
            for comm, pids in sorted(named.items(), key=lambda item: -len(item[1]))
        ]
        yield Text(f"  {'locked' if manner == 'mlocked' else manner} by {listing(holders, HOLDERS_SHOWN)}")


def _of_each_parent(patterns: Sequence[PinPattern]) -> list[PinPattern]:
    """The largest patterns, but some of every parent: one page pins a zombie, so the parent with most pages need not be
    the one with most zombies."""
    parents = list(dict.fromkeys(pattern.parent for pattern in patterns))
    each = max(2, PATTERNS_SHOWN // max(1, len(parents)))
    return [pattern for parent in parents for pattern in [one for one in patterns if one.parent == parent][:each]]


def _pattern_row(pattern: PinPattern, below: str) -> Row:
    doubt = "" if pattern.certain else " (likely)"
    where = f"{_short(pattern.pattern, 80)}{doubt}"
    return _KINDS[pattern.kind], f"{len(pattern.files):,}", size(pattern.bytes), _short(below, 30), where


def _leakers(report: ZombieReport, explanation: Explanation, zone: tzinfo | None) -> Iterator[Text]:
    if explanation.leaks is None or explanation.recorded is None:
        yield from _heading("made by", "")
        yield Text("  not known: there is no recording of this boot (exhume record)")
        return
    recorded, dying = explanation.recorded, report.census.dying
    attributed = (
        f"{explanation.leaks.zombies:,} of {dying:,} zombies" if dying is not None else f"{explanation.leaks.zombies:,}"
    )
    yield from _heading("made by", f"{attributed} were removed in the {duration(recorded.nanos)} of the recording")
    if not explanation.leaks.leakers:
        yield Text("  nothing: no cgroup that was removed while it was recorded is a zombie now")
    for leaker in explanation.leaks.leakers[:LEAKERS_SHOWN]:
        yield from _leaker(leaker, explanation, zone)
    if len(explanation.leaks.leakers) > LEAKERS_SHOWN:
        rest = explanation.leaks.leakers[LEAKERS_SHOWN:]
        total = sum(leaker.zombies for leaker in rest)
        yield Text(f"  and {count(len(rest), 'more pattern')} with {count(total, 'zombie')}", _DIM)


def _leaker(leaker: Leaker, explanation: Explanation, zone: tzinfo | None) -> Iterator[Text]:
    line = Text("  ")
    line.append(f"{leaker.zombies:,} ", _BOLD)
    line.append(visible(leaker.pattern), _BOLD)
    if leaker.made:
        line.append(f"  of {leaker.made:,} made", _DIM)
    if leaker.per_hour is not None:
        line.append(f", {leaker.per_hour:,.0f} an hour", _DIM)
    yield line
    named = containers_of(leaker, explanation.names)
    containers = [
        f"{visible(name.name)}{f' ({visible(name.image)})' if name.image else ''}, {counted:,}"
        if name
        else f"{number[:12]}, {counted:,}"
        for number, name, counted in named
    ]
    if containers:
        what = "container" if len(containers) == 1 else "containers"
        more = f" and {len(containers) - 3:,} more" if len(containers) > 3 else ""
        yield Text(f"      {what}: {'; '.join(containers[:3])}{more}")
    creator = explanation.creators.get(leaker.pattern)
    makers = listing([f"{visible(comm)} ({number:,})" for comm, number in leaker.creators])
    if makers:
        below = f", started by {visible(creator.parent_comm)}" if creator and creator.parent_comm else ""
        command = f": {_short(visible(creator.cmdline), 90)}" if creator and creator.cmdline else ""
        yield Text(f"      made by {makers}{below}{command}")
    first, last = (format_moment(moment, zone, digits=0) for moment in (leaker.first, leaker.last))
    yield Text(f"      first {first}, last {last}", _DIM)


def _blind_spots(report: ZombieReport) -> Iterator[Text]:
    explanation = report.explanation
    spots = [*report.census.blind_spots, *report.blind_spots]
    if explanation is not None:
        spots += [*explanation.blind_spots, *explanation.pins.blind_spots]
    if not spots:
        return
    yield from _heading("not seen", "")
    for spot in dict.fromkeys(spots):
        yield Text(f"  {visible(spot)}")


def _heading(title: str, text: str) -> Iterator[Text]:
    yield Text()
    line = Text()
    line.append(title, _BOLD)
    if text:
        line.append(f"  {text}", _DIM)
    yield line


def _table(header: Sequence[str], rows: Sequence[Row], right: Sequence[int] | range = ()) -> Iterator[Text]:
    """Aligned columns; the header is dim."""
    widths = [max(len(row[i]) for row in [tuple(header), *rows]) for i in range(len(header))]
    for index, row in enumerate([tuple(header), *rows]):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        yield Text("  " + "   ".join(cells).rstrip(), _PLAIN if index else _DIM, no_wrap=True)


def _short(text: str, width: int = 60) -> str:
    """A text cut in its middle."""
    shown = visible(text)
    if len(shown) <= width:
        return shown
    return f"{shown[: width // 2 - 1]}…{shown[-(width // 2) :]}"
