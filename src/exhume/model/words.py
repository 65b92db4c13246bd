"""Counts and sizes as people read them, for every sentence that has a number in it."""

from collections.abc import Sequence


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 sample`, `12,345 samples`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """`a`, `a and b`, `a, b and c`; of many, some and how many more."""
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
