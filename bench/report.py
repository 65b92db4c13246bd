"""Rows of results, the facts of the machine, and how both are printed and written."""

import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from exhume.lab.score import plan as machine

RESULTS = Path(__file__).with_name("RESULTS.md")
# With more other work than this, the figures are about that work.
QUIET = 0.05


@dataclass(frozen=True, slots=True)
class Row:
    """One measure. `must` and `aim` are upper bounds in the row's unit; without them the row only informs."""

    measure: str
    measured: float
    unit: str = ""
    must: float | None = None
    aim: float | None = None
    note: str = ""
    digits: int = 2

    @property
    def verdict(self) -> str:
        if self.must is None:
            return ""
        if self.aim is not None and self.measured <= self.aim:
            return "aim met"
        return "must met" if self.measured <= self.must else "MISSED"

    @property
    def missed(self) -> bool:
        return self.verdict == "MISSED"

    def cells(self) -> list[str]:
        part = f"{self.measured / self.must:.2f}" if self.must else ""
        return [
            self.measure,
            self._show(self.must),
            self._show(self.aim),
            self._show(self.measured),
            part,
            self.verdict,
        ]

    def _show(self, value: float | None) -> str:
        return "" if value is None else f"{value:,.{self.digits}f} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Section:
    """What one benchmark found, and how it was taken."""

    title: str
    method: str
    rows: list[Row]


def machine_facts() -> dict[str, str]:
    """What the figures depend on; nothing that names the machine."""
    return machine.machine_facts() | {"perf": _output_of("perf", "version")}


def machine_speed() -> Row:
    """What a fixed piece of work costs on this machine now: a virtual machine may have half of its speed an hour later,
    and figures in seconds or percent of a core can be compared only next to it."""

    def once() -> float:
        began, total = time.process_time(), 0
        for number in range(10_000_000):
            total += number
        return time.process_time() - began

    return Row("the machine: ten million additions in Python", min(once() for _ in range(3)), "s of CPU")


def _output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def as_table(rows: list[Row]) -> str:
    lines = ["| measure | must | aim | measured | of must | |", "|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines)


def with_sections(document: str, sections: list[Section], busy: float) -> str:
    """A document in which some sections are those of another run: in the place of the earlier ones, or at its end."""
    head, *parts = document.rstrip("\n").split("\n\n## ")
    taken = f"(Taken by a later run, on {datetime.now(UTC):%Y-%m-%d}"
    taken += f", while other work took up to {busy:.0%} of the machine.)" if busy > QUIET else ".)"
    for section in sections:
        own = Section(section.title, f"{taken} {section.method}", section.rows)
        text = as_document([own], quick=False, busy=0.0).rstrip("\n").split("\n\n## ")[-1]
        places = [place for place, part in enumerate(parts) if part.partition("\n")[0] == section.title]
        parts[slice(places[0], places[0] + 1) if places else slice(len(parts), None)] = [text]
    bound = [line for part in parts[1:] for line in part.splitlines() if _is_bound(line)]
    parts[0] = "\n".join([*parts[0].splitlines()[:4], *bound])
    return "\n\n## ".join([head, *parts]) + "\n"


def _is_bound(line: str) -> bool:
    """Whether a line is a row of a table that has a bound."""
    return line.startswith("| ") and not line.startswith("| measure |") and bool(line.split(" | ")[1])


def as_document(sections: list[Section], quick: bool, busy: float) -> str:
    bound = [row for section in sections for row in section.rows if row.must is not None]
    parts = [
        "# Costs and speeds",
        f"Written by `make bench{' QUICK=1' if quick else ''}` on {datetime.now(UTC):%Y-%m-%d}. "
        "Ratios are taken in one run: what is compared ran side by side in the same minutes, under the same load.",
    ]
    if quick:
        parts.append("**A quick run**: shorter and smaller than the real one, for a first look, not for comparing.")
    if busy > QUIET:
        parts.append(f"**Not a quiet machine**: other work took up to {busy:.0%} of it between the measures.")
    parts.append("\n".join(f"- {name}: {value}" for name, value in machine_facts().items()))
    parts += ["## All at once", as_table(bound)]
    for section in sections:
        parts += [f"## {section.title}", " ".join(section.method.split())]
        parts += [as_table(section.rows)] if section.rows else []
        parts += [f"- {row.measure}: {row.note}" for row in section.rows if row.note]
    return "\n\n".join(parts).replace("\n\n- ", "\n- ") + "\n"
