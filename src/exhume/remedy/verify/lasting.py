"""Lengths of time and counts, in the words of a verdict."""

import math


def lasting(seconds: float) -> str:
    """A length of time, rounded as people would."""
    if seconds < 90:
        return f"{max(1, math.ceil(seconds - 0.5))} s"
    if seconds < 5400:
        return f"{math.ceil(seconds / 60 - 0.5)} min"
    if seconds < 48 * 3600:
        return f"{math.ceil(seconds / 3600 - 0.5)} h"
    return f"{math.ceil(seconds / 86400 - 0.5):,} days"


def longer(seconds: float) -> str:
    """How much more it takes; under a minute is not worth the words."""
    return f"look for {lasting(seconds)} longer" if seconds >= 60 else "look for a minute longer"


def times(count: int) -> str:
    return "never" if count == 0 else "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"
