"""Times as container engines write them."""

from datetime import UTC, datetime
from typing import Any

_NANOS = 10**9


def nanoseconds(text: Any) -> int | None:
    """2026-01-02T03:04:05.678901234Z as nanoseconds of the wall clock; None for the year 1, which stands for never, and
    for what is no time."""
    try:
        whole, _, rest = str(text).partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        return None
    if moment.tzinfo is None or moment.year <= 1970:
        return None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * _NANOS + int((digits + "0" * 9)[:9])
