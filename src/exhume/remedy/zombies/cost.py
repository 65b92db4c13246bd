"""What the steps against zombies cost, predicted from measurements on Linux 6.18: CPU seconds of one core.

Predictions are of the worst case, where nothing can be reclaimed: then the kernel looks at every zombie again
and again.
"""

from bisect import bisect_left

# A core that is held in the kernel for this long is a spike: enough for a network queue to be missed.
SPIKE_S = 1.0
GIB = 1 << 30

# Zombies below the cgroup that is reclaimed -> seconds.
_RECLAIM = ((0, 0.0), (5_000, 1.65), (20_000, 5.2), (68_000, 18.4))
_DROP_CACHES_S_PER_GIB = 0.25
_SWAP_OUT_S_PER_GIB = 1.5
_SWAP_IN_S_PER_GIB = 2.0
_FADVISE_S_PER_FILE = 50e-6


def reclaim_seconds(zombies: int) -> float:
    """Reclaim on a parent of so many zombies: between the measured points on a line, beyond the last on its slope."""
    counts = [count for count, _ in _RECLAIM]
    upper = min(max(1, bisect_left(counts, zombies)), len(_RECLAIM) - 1)
    (low_count, low), (high_count, high) = _RECLAIM[upper - 1], _RECLAIM[upper]
    return low + (zombies - low_count) * (high - low) / (high_count - low_count)


def drop_caches_seconds(page_cache: int) -> float:
    return page_cache / GIB * _DROP_CACHES_S_PER_GIB


def swap_out_seconds(size: int) -> float:
    return size / GIB * _SWAP_OUT_S_PER_GIB


def swap_in_seconds(size: int) -> float:
    return size / GIB * _SWAP_IN_S_PER_GIB


def fadvise_seconds(files: int) -> float:
    return files * _FADVISE_S_PER_FILE


def is_spike(seconds: float) -> bool:
    return seconds >= SPIKE_S
