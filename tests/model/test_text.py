"""Numbers as people read them."""

import pytest

from exhume.model import text
from exhume.model.clock import NANOS


@pytest.mark.parametrize(
    ("nanos", "said"),
    [
        (15_000_000, "15 ms"),
        (NANOS, "1 s"),
        (4_250_000_000, "4.2 s"),
        (200 * NANOS, "3 m 20 s"),
        (43_440 * NANOS, "12 h 04 m"),
        (90_000 * NANOS, "1 d 01 h"),
    ],
)
def test_durations(nanos, said):
    assert text.duration(nanos) == said


@pytest.mark.parametrize(
    ("amount", "said"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes(amount, said):
    assert text.size(amount) == said


def test_counts_and_lists():
    assert text.count(1, "sample") == "1 sample"
    assert text.count(12345, "sample") == "12,345 samples"
    assert text.listing(["a", "b"]) == "a, b"
    assert text.listing(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert text.points(-0.5) == "-50.00 points"
