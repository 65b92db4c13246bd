"""Numbers as people read them: with units, thousands separators and no false precision."""

from exhume.model.clock import NANOS
from exhume.model.words import count, size

__all__ = ["count", "duration", "listing", "percent", "points", "size"]


def duration(nanos: int) -> str:
    """A span in its two largest units: `12 h 04 m`, `3 m 20 s`, `4.2 s`, `15 ms`."""
    if nanos < NANOS:
        return f"{nanos / 1e6:.0f} ms"
    if nanos < 60 * NANOS:
        tenths = nanos * 10 // NANOS
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
    """The first few of many, and how many more there are."""
    if len(items) <= limit:
        return ", ".join(items)
    return ", ".join(items[:limit]) + f" and {len(items) - limit:,} more"
