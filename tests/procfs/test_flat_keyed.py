"""Files with a name and a number on each line."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.procfs.flat_keyed import NamedCounters, parse_flat_keyed, parse_meminfo


def test_lines_of_another_shape_are_left_out() -> None:
    content = b"anon 4096\nMemTotal:       100 kB\nempty\nnegative -1\ntext abc\n"
    assert parse_flat_keyed(content) == {b"anon": 4096, b"MemTotal": 100}


def test_meminfo_is_in_bytes() -> None:
    assert parse_meminfo(b"MemTotal:  4 kB\nPercpu: 0 kB\n") == {"MemTotal": 4096, "Percpu": 0}


@given(st.binary(max_size=200))
def test_no_content_breaks_the_parser(content: bytes) -> None:
    assert all(value >= 0 for value in parse_flat_keyed(content).values())


def test_named_counters_find_their_lines_again() -> None:
    counters = NamedCounters({"a": ("x", "y"), "b": ("absent",)})
    assert counters.read(b"x 1\nz 5\ny 2\n") == {"a": 3}
    assert counters.read(b"z 5\nmore 0\ny 2\nx 10\n") == {"a": 12}
