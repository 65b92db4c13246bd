"""How old a thing gets before it ends, in words."""

from collections.abc import Sequence

# Fewer runs are no pattern.
_LEAST_RUNS = 3
_FEW_SECONDS = 10.0
_A_MINUTE = 60.0


def age_pattern(lasted_s: Sequence[float]) -> str:
    """What the runs that ended have in common ("always a few seconds old: the last 312 runs lasted 2.1 s to 4.0 s");
    empty where there are too few of them."""
    if len(lasted_s) < _LEAST_RUNS:
        return ""
    ordered = sorted(lasted_s)
    shortest, longest = ordered[0], ordered[-1]
    runs = f"the last {len(ordered)} runs lasted {_span(shortest)} to {_span(longest)}"
    if longest < _FEW_SECONDS:
        return f"always a few seconds old: {runs}"
    if longest < _A_MINUTE:
        return f"never a minute old: {runs}"
    return f"{runs}, half of them less than {_span(ordered[len(ordered) // 2])}"


def _span(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
