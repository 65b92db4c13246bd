"""Numbers as people read them."""

import time

import pytest

from exhume.model import text
from exhume.model.clock import NANOS


@pytest.mark.parametrize(
    ("nanos", "said"),
    [
        (15_000_000, "15 ms"),
        (999_400_000, "999 ms"),
        (999_600_000, "1 s"),
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


@pytest.mark.parametrize("name", ["a" * 100_000, "1" * 100_000 + "x", "ab1" * 30_000 + "z", "-1x" * 30_000])
def test_the_pattern_of_a_long_name_takes_no_longer_for_each_character(name):
    began = time.process_time()
    text.path_pattern(name)
    assert time.process_time() - began < 1
