"""Zombies in the terminal: the verdict, the counts, what holds them and what created them; and a live view of the
counts."""

import json
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo

from rich.console import Console
from rich.text import Text

from exhume.diagnose.facts.leaks import Leaker
from exhume.diagnose.growth import SAMPLING, Growth
from exhume.diagnose.zombie_report import GROWING, MANY, UNKNOWN, WELL, Explanation, ZombieReport, hours_until
from exhume.model.clock import NANOS
from exhume.model.text import count, duration, listing, percent, size
from exhume.model.times import format_clock, format_moment
from exhume.model.zombies import HierarchyCensus, ParentResidual, PinKind
from exhume.present.events_view import visible
from exhume.present.palette import BLUE, GREEN, ORANGE, RED
from exhume.present.terminal.console import (
    BOLD,
    DIM,
    NO_VALUE,
    badge,
    console,
    cut_middle,
    fitted,
    print_lines,
    table,
)
from exhume.present.zombies_view import PinPattern, containers_of, pin_patterns, recorded_below, zombies_json

_BADGES = {WELL: GREEN, GROWING: ORANGE, MANY: RED, UNKNOWN: BLUE}
PARENTS_SHOWN, PATTERNS_SHOWN, LEAKERS_SHOWN, HOLDERS_SHOWN, CONTAINERS_SHOWN = 8, 10, 8, 4, 3

_KINDS = {
    PinKind.FILE: "cached file",
    PinKind.MAPPED: "mapped file",
    PinKind.MLOCKED: "locked in memory",
    PinKind.SHMEM: "tmpfs, shared memory",
    PinKind.ANON: "process memory",
    PinKind.SWAP: "swapped tmpfs",
    PinKind.METADATA: "filesystem metadata",
}
_BARS = "▁▂▃▄▅▆▇█"
_LABEL = "  zombies "


def print_zombies(terminal: Console, report: ZombieReport, zone: tzinfo | None) -> None:
    width = terminal.width if terminal.is_terminal else None
    for line in report_lines(report, zone, width):
        print_lines(terminal, fitted(terminal, line))


def report_lines(report: ZombieReport, zone: tzinfo | None, width: int | None = None) -> Iterator[Text]:
    """The report, line by line; tables fit the width, if one is given."""
    yield from _counts(report, width)
    yield Text()
    *lines, thresholds = _findings(report, zone)
    yield from (Text(f"  {line}") for line in lines)
    yield Text(f"  {thresholds}", DIM)
    explanation = report.explanation
    spots = [*report.census.blind_spots, *report.blind_spots]
    if explanation is not None:
        yield from _parents(explanation, width)
        yield from _pins(explanation, width)
        yield from _leakers(report, explanation, zone)
        spots += [*explanation.blind_spots, *explanation.pins.blind_spots]
    if spots:
        yield from _heading("not seen")
        yield from (Text(f"  {visible(spot)}") for spot in dict.fromkeys(spots))


def format_growth(growth: Growth | None) -> str:
    """The growth rate, as `+409/h`; of a sampling too short to see slow growth, its length is shown instead."""
    if growth is None:
        return NO_VALUE
    if growth.source == SAMPLING and growth.first == growth.last:
        return f"none in {growth.seconds:.1f} s"
    return f"{growth.per_hour:+,.0f}/h" if abs(growth.per_hour) >= 0.5 else "flat"


def _counts(report: ZombieReport, width: int | None) -> Iterator[Text]:
    """The verdict, and the counts of each hierarchy."""
    verdict, census = report.verdict, report.census
    yield badge(verdict.level, _BADGES[verdict.level]).append(f" {verdict.summary}", BOLD)
    yield Text()
    shown = [each for each in census.hierarchies if each.controller == "memory" or each.dying or each.note]
    others = [f"{each.controller} v{each.version}" for each in census.hierarchies if each not in shown]
    rows = [_count_row(each, report.growth.get((each.name, each.controller))) for each in shown]
    yield from table(("hierarchy", "kernel", "visible", "zombies", "memory held", "growth"), rows, range(1, 6), width)
    if others:
        yield Text(f"  no zombies in {listing(others, 4)}", DIM)
    held = census.memory.memory_bytes if census.memory else None
    kernel = (census.slab_bytes or 0) + (census.percpu_bytes or 0)
    if held and kernel:
        part = f"unreclaimable slab and per-CPU memory of this kernel: {size(kernel)}"
        if census.memory and census.memory.memory_measured:
            part = f"measured as their number changed; {part}, so {percent(min(1.0, held / kernel), 0)} of it"
        else:
            # This is a lower bound: the cost of one can be many times that (mm/shrinker.c, alloc_shrinker_info: it
            # grows with the number of mounts there ever were).
            part = f"≥ what one costs at least; {part}"
        yield Text(f"  {part}", DIM)


def _count_row(each: HierarchyCensus, growth: Growth | None) -> Sequence[str]:
    held = NO_VALUE
    if each.memory_bytes is not None:
        held = f"{'' if each.memory_measured else '≥ '}{size(each.memory_bytes)}" if each.memory_bytes else "none"
    name = each.name if each.name == each.controller else f"{each.name} ({each.controller})"
    if each.name == "unified":
        name = f"unified: {each.controller}"
    numbers = [NO_VALUE if number is None else f"{number:,}" for number in (each.kernel, each.visible, each.dying)]
    return f"{name}, v{each.version}", *numbers, held, format_growth(growth)


def _findings(report: ZombieReport, zone: tzinfo | None) -> Iterator[str]:
    """The reasons of the verdict; the thresholds come last."""
    yield from report.verdict.reasons
    memory, thresholds = report.census.memory, report.verdict.thresholds
    growth = report.growth.get((memory.name, memory.controller)) if memory else None
    if growth is not None and growth.source == SAMPLING:
        seen = NANOS * 3600 / max(growth.seconds * NANOS, 1)
        yield (
            f"growth is from a sampling of {growth.seconds:.1f} s, which sees no pace below {seen:,.0f} an hour; "
            "a recording of a minute or more would (exhume record)"
        )
    elif growth is not None:
        # The last count may be slightly older than this: growth uses the lower of two counts at each end.
        until = growth.since + round(growth.seconds * NANOS)
        since, last = (format_moment(wall, zone, digits=0) for wall in (growth.since, until))
        yield f"growth is from the recording: {growth.first:,} at {since}, {growth.last:,} at {last}"
        hours = hours_until(memory.dying, growth, thresholds) if memory and memory.dying is not None else None
        if hours is not None and not report.verdict.is_finding and hours < 24 * 365:
            yield f"at this pace there would be {thresholds.many:,} in {hours / 24:,.0f} days"
    yield (
        f"thresholds: {thresholds.many:,} are many (precedent: a cloud vendor's advice); growth counts when it gets "
        f"there within {thresholds.horizon_hours} h; up to {thresholds.normal} are normal (a fresh boot has some 20)"
    )


def _parents(explanation: Explanation, width: int | None) -> Iterator[Text]:
    yield from _heading("held below", "what removed cgroups still hold, by their closest live parent")
    if not explanation.parents:
        yield Text("  no cgroup is seen to have anything charged to removed children")
        return
    below = recorded_below(explanation)
    # Zombies whose release was not recorded may have been below any of the parents.
    bound = "~" if explanation.leaks and explanation.leaks.unseen else "≥"
    rows = [
        _parent_row(parent, f"{bound} {below[parent.name]:,}" if below[parent.name] else NO_VALUE)
        for parent in explanation.parents[:PARENTS_SHOWN]
    ]
    header = ("parent", "zombies", "file", "metadata", "tmpfs", "anon", "swap", "unknown", "mapped", "locked")
    # Empty columns are omitted, except the parent.
    columns = [column for column in zip(header, *rows, strict=True) if set(column[1:]) != {NO_VALUE}]
    header, *rows = zip(*columns, strict=True)
    yield from table(header, rows, range(1, len(header)), width)
    if len(explanation.parents) > PARENTS_SHOWN:
        yield Text(f"  and {count(len(explanation.parents) - PARENTS_SHOWN, 'more parent')}", DIM)
    if any(parent.unclassified_bytes for parent in explanation.parents):
        yield Text("  unknown: in the page counters, but missing from this kernel's memory.stat", DIM)
    if any(parent.version == 2 for parent in explanation.parents):
        yield Text("  on v2 pages of the parent itself are among these: they are at most so much", DIM)


def _parent_row(parent: ParentResidual, recorded: str) -> tuple[str, ...]:
    amounts = (
        *(parent.file_bytes - parent.metadata_bytes, parent.metadata_bytes, parent.shmem_bytes, parent.anon_bytes),
        *(parent.swap_bytes, parent.unclassified_bytes, parent.mapped_bytes, parent.unevictable_bytes),
    )
    # v1 does not count zombies by parent; a recording knows at least some of them.
    zombies = f"{parent.dying:,}" if parent.dying is not None else recorded
    return cut_middle(parent.name), zombies, *(size(amount) if amount else NO_VALUE for amount in amounts)


def _pins(explanation: Explanation, width: int | None) -> Iterator[Text]:
    pins = explanation.pins
    if not pins.files and not pins.expected_bytes:
        return
    looked = f"{count(pins.looked_at, 'file')} looked at in {pins.seconds:.1f} s"
    if pins.expected_bytes:
        found = sum(file.bytes for file in pins.files if file.kind is not PinKind.SWAP)
        share = percent(min(1.0, found / pins.expected_bytes), 0)
        looked = f"{share} of what is held was found in files; {looked}"
    yield from _heading("likely pins", looked)
    patterns = pin_patterns(pins.files)
    # The largest patterns, but some of every parent: one page is enough to pin a zombie, so the parent with most pages
    # is not necessarily the one with most zombies.
    parents = list(dict.fromkeys(pattern.parent for pattern in patterns))
    each = max(2, PATTERNS_SHOWN // max(1, len(parents)))
    shown = [pattern for parent in parents for pattern in [one for one in patterns if one.parent == parent][:each]]
    if shown:
        names = {parent.path: parent.name for parent in explanation.parents}
        rows = [_pattern_row(pattern, names.get(pattern.parent, NO_VALUE)) for pattern in shown]
        yield from table(("kind", "files", "held", "below", "where"), rows, (1, 2), width)
    if len(patterns) > len(shown):
        rest = [pattern for pattern in patterns if pattern not in shown]
        more = f"{count(sum(len(p.files) for p in rest), 'more file')} with {size(sum(p.bytes for p in rest))}"
        yield Text(f"  and {more}; --json names {'them' if len(pins.files) <= 100 else 'the first hundred'}", DIM)
    yield from _holders(patterns)


def _holders(patterns: Sequence[PinPattern]) -> Iterator[Text]:
    """The processes that keep the files in memory, sorted by name, with locked pages before mapped ones."""
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


def _pattern_row(pattern: PinPattern, below: str) -> Sequence[str]:
    where = f"{cut_middle(pattern.pattern, 80)}{'' if pattern.certain else ' (likely)'}"
    return _KINDS[pattern.kind], f"{len(pattern.files):,}", size(pattern.bytes), cut_middle(below, 30), where


def _leakers(report: ZombieReport, explanation: Explanation, zone: tzinfo | None) -> Iterator[Text]:
    leaks, dying = explanation.leaks, report.census.dying
    if leaks is None or explanation.recorded is None:
        yield from _heading("made by")
        yield Text("  not known: there is no recording of this boot (exhume record)")
        return
    attributed = f"{leaks.zombies:,} of {dying:,} zombies" if dying is not None else f"{leaks.zombies:,}"
    span = duration(explanation.recorded.nanos)
    yield from _heading("made by", f"{attributed} were removed in the {span} of the recording")
    if not leaks.leakers:
        yield Text("  nothing: no cgroup that was removed while it was recorded is a zombie now")
    for leaker in leaks.leakers[:LEAKERS_SHOWN]:
        yield from _leaker(leaker, explanation, zone)
    if rest := leaks.leakers[LEAKERS_SHOWN:]:
        total = sum(leaker.zombies for leaker in rest)
        yield Text(f"  and {count(len(rest), 'more pattern')} with {count(total, 'zombie')}", DIM)


def _leaker(leaker: Leaker, explanation: Explanation, zone: tzinfo | None) -> Iterator[Text]:
    line = Text("  ").append(f"{leaker.zombies:,} {visible(leaker.pattern)}", BOLD)
    if leaker.made:
        line.append(f"  of {leaker.made:,} made", DIM)
    if leaker.per_hour is not None:
        line.append(f", {leaker.per_hour:,.0f} an hour", DIM)
    yield line
    containers = [
        f"{visible(f'{name.name} ({name.image})' if name.image else name.name) if name else number[:12]}, {counted:,}"
        for number, name, counted in containers_of(leaker, explanation.names)
    ]
    if containers:
        more = f" and {len(containers) - CONTAINERS_SHOWN:,} more" if len(containers) > CONTAINERS_SHOWN else ""
        what = "container" if len(containers) == 1 else "containers"
        yield Text(f"      {what}: {'; '.join(containers[:CONTAINERS_SHOWN])}{more}")
    creator = explanation.creators.get(leaker.pattern)
    makers = listing([f"{visible(comm)} ({number:,})" for comm, number in leaker.creators])
    if makers:
        below = f", started by {visible(creator.parent_comm)}" if creator and creator.parent_comm else ""
        command = f": {cut_middle(visible(creator.cmdline), 90)}" if creator and creator.cmdline else ""
        yield Text(f"      made by {makers}{below}{command}")
    first, last = (format_moment(moment, zone, digits=0) for moment in (leaker.first, leaker.last))
    yield Text(f"      first {first}, last {last}", DIM)


def _heading(title: str, text: str = "") -> Iterator[Text]:
    yield Text()
    yield Text().append(title, BOLD).append(f"  {text}" if text else "", DIM)


def watch_surface(color: str, as_json: bool, zone: tzinfo | None) -> Callable[[ZombieReport], None]:
    """A function that displays each report: as JSON lines, on a screen that is redrawn, or as plain lines."""
    if as_json:
        return lambda report: print(json.dumps(zombies_json(report, zone)), flush=True)
    if sys.stdout.isatty():
        return _Screen(console(color), zone)
    return lambda report: print(_line(report, zone), flush=True)


def sparkline(values: list[int]) -> str:
    """Values as bars scaled between minimum and maximum; equal values give a flat line."""
    least, most = min(values), max(values)
    if least == most:
        return _BARS[0] * len(values)
    return "".join(_BARS[(value - least) * (len(_BARS) - 1) // (most - least)] for value in values)


def _line(report: ZombieReport, zone: tzinfo | None) -> str:
    memory = report.census.memory
    when = format_clock(report.wall, zone)
    if memory is None or memory.dying is None:
        return f"{when} zombies can't be counted: {'; '.join(report.census.blind_spots)}"
    pace = format_growth(report.growth.get((memory.name, memory.controller)))
    return f"{when} {count(memory.dying, 'zombie')}, {memory.visible or 0:,} visible, growth {pace}"


class _Screen:
    """A redrawn screen with the current counts and their history."""

    def __init__(self, terminal: Console, zone: tzinfo | None) -> None:
        self._terminal = terminal
        self._zone = zone
        self._seen: deque[int] = deque(maxlen=1000)
        self._began: int | None = None
        self._first = self._drawn = 0

    def __call__(self, report: ZombieReport) -> None:
        width = shutil.get_terminal_size().columns
        dying = report.census.dying
        if self._began is None:
            self._began, self._first = report.wall, dying or 0
        below = [f"  {visible(spot)}" for spot in report.census.blind_spots]
        if dying is not None:
            self._seen.append(dying)
            shown = list(self._seen)[-max(10, width - len(_LABEL) - 1) :]
            change = f"{dying - self._first:+,} since the start"
            below = [f"{_LABEL}{sparkline(shown)}", f"  {min(shown):,} to {max(shown):,}, {change}", *below]
        when, watched = format_clock(report.wall, self._zone), duration(report.wall - self._began)
        below.append(f"  {when}, watched for {watched}; every 2 s · Ctrl-C ends")
        with self._terminal.capture() as captured:
            print_lines(self._terminal, (*_counts(report, width), Text(), *map(Text, below)))
        lines = captured.get().split("\n")[:-1]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        sys.stdout.write(f"{up}\r" + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        sys.stdout.flush()
        self._drawn = len(lines)
