"""/proc/interrupts (kernel/irq/proc.c, show_interrupts) and /proc/softirqs (fs/proc/softirqs.c, show_softirqs): a
column per CPU, a row per interrupt."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_TRIGGERS = ("-edge", "-level", "-fasteoi")


class InterruptRow(NamedTuple):
    """The counts of one interrupt, one for each CPU of the header, and its name."""

    counts: list[int]
    name: str


def parse_header(content: bytes) -> tuple[int, ...]:
    """The CPUs of the columns, from the first line."""
    return tuple(int(name[3:]) for name in content.partition(b"\n")[0].split() if name[3:].isdigit())


def parse_label(row: bytes) -> str:
    """A row's interrupt: a number, or an architecture-specific name such as LOC; empty if it is not a row."""
    return row[: row.find(b":")].strip().decode("ascii", "replace")


def parse_row(row: bytes, width: int) -> InterruptRow | None:
    """A row of /proc/interrupts with this many CPUs; None for one that counts for the whole machine (ERR, MIS)."""
    fields = row.split(None, width + 1)
    if len(fields) <= width or not fields[width].isdigit():
        return None
    counts = list(map(int, fields[1 : width + 1]))
    rest = fields[width + 1] if len(fields) > width + 1 else b""
    return InterruptRow(counts, interrupt_name(rest, numbered=fields[0].rstrip(b":").isdigit()))


def parse_softirq(content: bytes, name: bytes) -> NDArray[np.int64] | None:
    """The row of one softirq (NET_RX) in /proc/softirqs; None when it is missing."""
    start = content.find(name + b":")
    if start < 0:
        return None
    row = content[start + len(name) + 1 : content.find(b"\n", start)]
    return np.fromstring(row, np.int64, sep=" ")


def interrupt_name(rest: bytes, *, numbered: bool) -> str:
    """The interrupt's name in the text after the counts: it follows the chip, the hardware IRQ number and
    the trigger."""
    parts = rest.decode("utf-8", "replace").split()
    if not numbered:
        return " ".join(parts)
    for index, part in enumerate(parts):
        if part.lower().endswith(_TRIGGERS) or part in ("Edge", "Level", "None"):
            return " ".join(parts[index + 1 :])
    return parts[-1] if parts else ""
