"""Format counts, sizes, durations, shares and lists as text, with units and separators, without false precision. Also
the pattern of paths that differ only in ids."""

import re
from collections.abc import Sequence

from exhume.model.clock import NANOS


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 sample`, `12,345 samples`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """`a`, `a and b`, `a, b and c`; a long list is cut, followed by how many more there are."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def size(amount: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def duration(nanos: int) -> str:
    """A span in its two largest units: `12 h 04 m`, `3 m 20 s`, `4.2 s`, `15 ms`."""
    if round(nanos / 1e6) < 1000:
        return f"{nanos / 1e6:.0f} ms"
    if nanos < 60 * NANOS:
        tenths = max(10, nanos * 10 // NANOS)
        return f"{tenths // 10} s" if tenths % 10 == 0 else f"{tenths / 10:.1f} s"
    seconds = nanos // NANOS
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours:02d} h"
    if seconds >= 3600:
        return f"{hours} h {minutes:02d} m"
    return f"{minutes} m {seconds % 60:02d} s"


def percent(share: float, digits: int = 1) -> str:
    """A share of one as a percentage."""
    return f"{share * 100:.{digits}f}%"


def points(delta: float) -> str:
    """A difference of two shares, in percentage points with its sign."""
    return f"{delta * 100:+.2f} points"


def listing(items: list[str], limit: int = 3) -> str:
    """The first few items, followed by how many more there are."""
    return ", ".join(items[:limit]) + (f" and {len(items) - limit:,} more" if len(items) > limit else "")


# Possessive, and only tried at the start of a run of digits: names come from others, and the matching time must not be
# quadratic in their length.
_ID = re.compile(
    r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"  # a UUID, as systemd writes it too
    r"|(?<![0-9a-f])(?=[a-f]*+[0-9])[0-9a-f]{12,}+"  # a container's id, whole or short
    r"|(?<![0-9A-Za-z])(?=[a-f]*[0-9])[0-9a-f]{8,11}(?![0-9A-Za-z])"
    r"|(?<![0-9])[0-9]++(?![0-9A-Za-z])"  # a number, unless a letter follows: k8s and s6 stay what they are
)
_REPEATED = re.compile(r"\*(?:[-_.:]?\*)+")


def path_pattern(path: str) -> str:
    """The path with `*` for ids and numbers, so that 70,000 instances of `docker/<id>` become one line."""
    return _REPEATED.sub("*", _ID.sub("*", path))
