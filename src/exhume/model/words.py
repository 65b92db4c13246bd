"""Counts and sizes as people read them, for every sentence that has a number in it."""


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 sample`, `12,345 samples`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(amount: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"
