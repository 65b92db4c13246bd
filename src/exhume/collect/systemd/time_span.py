"""Lengths of time as systemd writes them."""

import re

# systemd's words for lengths of time.
_SPANS_US = {"us": 1, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6, "d": 86400e6, "w": 7 * 86400e6}
_SPANS_US |= {"month": 2629800e6, "y": 31557600e6, "": 1}
_SPAN = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(sorted(_SPANS_US, key=len, reverse=True))})")


def time_span_us(text: str) -> int | None:
    """`1min 30s` in microseconds; None for `infinity`, and for what is no time."""
    parts = [_SPAN.fullmatch(word) for word in text.split()]
    if not parts or not all(parts):
        return None
    return round(sum(float(part[1]) * _SPANS_US[part[2]] for part in parts if part))
