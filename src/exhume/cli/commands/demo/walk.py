"""What the demo says: the steps through an incident, from what its recording and diagnosis hold."""

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

import pyarrow.compute as pc

from exhume.cli.terminal import dir_args
from exhume.library import Recording
from exhume.model.clock import MILLIS, NANOS
from exhume.model.finding import Diagnosis, Finding, Role
from exhume.model.text import percent
from exhume.model.times import format_clock
from exhume.present.diagnosis_view import ROLE_LABELS, confidence_text, verdict_text

WIDTH = 78
INDENT = " " * 6
AROUND_MS = 45_000
MINUTE = 60 * NANOS


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the walk: a title, paragraphs, and commands or addresses, which are never broken. `view` is the
    fragment (the part after `#`) of the page's address, if the step has one."""

    title: str
    paragraphs: tuple[str, ...]
    commands: tuple[str, ...] = ()
    view: str | None = None

    def text(self, link: str) -> str:
        """The step as printed, with the page at `link`."""
        filled = (
            textwrap.fill(each, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT) for each in self.paragraphs
        )
        blocks = [self.title, *filled]
        lines = [*self.commands, *([] if self.view is None else [f"{link}{self.view}"])]
        if lines:
            blocks.append("\n".join(f"{INDENT}  {line}" for line in lines))
        return "\n\n".join(blocks)


def steps_of(recording: Recording, zone: tzinfo | None, kept: Path | None) -> list[Step]:
    """The steps through the incident of a recording. `kept` is the directory of the recording if it is kept, else
    None."""
    found = recording.diagnose()
    finding = found.findings[0]
    since, until = found.focus
    core, moment = finding.culprit.cpu, format_clock(since, zone)
    # The network was lost when its card was reset, which is the last of the symptoms.
    lost = format_clock(max(link.at for link in finding.chain if link.role is Role.SYMPTOM), zone)
    span = f"since={since // MILLIS - AROUND_MS}&until={until // MILLIS + AROUND_MS}"
    selected = f"#{span}&s0={since // MILLIS}&s1={until // MILLIS}&cpus={core}"
    place = "" if kept is None else dir_args(kept)
    end = "; then all of this is removed (`--keep DIR` keeps it for the other commands)"
    if kept is not None:
        end = f"; the recording stays in {kept}"
    program = _program()
    return [
        Step(
            "An ordinary node, and a job that died",
            (
                f"Five minutes of a training node with {recording.facts.cores} cores, in the format of a real "
                f"recording. At {lost} a job on it lost its network. The dashboards are green: in that minute the "
                f"node was {_busy(recording, since - MINUTE // 2, since + MINUTE // 2)} busy, in the minute before "
                f"{_busy(recording, since - MINUTE * 3 // 2, since - MINUTE // 2)}.",
                "The page has every core and every second. Open it:",
            ),
            view="",
        ),
        Step(
            "Which second, which core?",
            (
                "A row is a core, a column a moment; the stronger a cell, the more unusual it was for its core. One "
                f"bad second of one core stays visible however far you zoom out: look for core {core}, around "
                f"{moment}.",
                "Click the mark in the lane `incidents` above the cores (or press n): the timeline goes there, and "
                "the time and core of the incident are selected. This link does the same:",
            ),
            view=selected,
        ),
        Step(
            "What ran there?",
            (
                f"Below is the flame graph of these seconds on core {core}: {finding.culprit.comm}, in "
                f"{finding.culprit.function}. Drag over other cores or another time, and it follows.",
                "Difference shows what had not run there before: what is orange grew.",
            ),
            view=f"{selected}&tab=difference",
        ),
        Step("Why?", tuple(_verdict(found, finding, zone)), view=f"{selected}&tab=diagnosis"),
        Step(
            "What stops it?",
            (
                "Each finding comes with remedies, each with its risk and whether it can be undone. On a real node "
                "`exhume fix plan` shows the steps, `exhume fix apply` takes them, and `exhume fix verify` proves "
                "with figures from before and after whether they helped. Of this one:",
            ),
            tuple(remedy.command for remedy in finding.remedies if remedy.command)[:3],
        ),
        Step(
            "Now on your own node",
            ("Record a node until the next incident, with the page next to it; root sees most:",),
            (f"sudo {program}", *((f"{program} diagnose{place}",) if place else ()), f"{program} --help"),
        ),
        Step("Look around", (f"The page is served until you press Ctrl-C{end}.",), view=""),
    ]


def _program() -> str:
    """The command that starts this program under sudo, which has a PATH of its own."""
    started = Path(sys.argv[0])
    on_every_path = started.parent in (Path("/usr/bin"), Path("/usr/local/bin"))
    return "exhume" if on_every_path or started.name != "exhume" else str(started)


def _busy(recording: Recording, since: int, until: int) -> str:
    """The average over all cores, as a dashboard would show it."""
    idle = recording.table("cpu", since, until).column("idle")
    return percent(1 - float(pc.mean(idle).as_py()) / 1000)


def _verdict(found: Diagnosis, finding: Finding, zone: tzinfo | None) -> Iterator[str]:
    yield f"{found.verdict}: {verdict_text(found)} ({confidence_text(finding.confidence)})"
    yield "The chain behind it, in short; on the page each link has the recorded values that it rests on:"
    roles: set[Role] = set()
    for link in finding.chain:
        if link.role not in roles or link.role is Role.ROOT_CAUSE:
            yield f"{format_clock(link.at, zone)} {ROLE_LABELS[link.role]}: {link.text}"
        roles.add(link.role)
