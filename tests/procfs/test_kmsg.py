"""Records of /dev/kmsg and of syslog(2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.procfs.kmsg import LogRecord, parse_record, parse_syslog


def test_a_record_in_parts() -> None:
    record = parse_record(b"30,339,5140900,-,caller=T1;text; with; semicolons\\x09and \\xc3\\xa4\n SUBSYSTEM=net\n")
    assert record is not None
    assert (record.sequence, record.stamp_us, record.continues) == (339, 5140900, False)
    assert record.text == "text; with; semicolons\tand ä"


@given(st.binary(max_size=200))
def test_no_record_breaks_the_parser(raw: bytes) -> None:
    record = parse_record(raw)
    assert record is None or record.sequence >= 0


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.text(st.characters(exclude_characters="\n\\"), max_size=80))
def test_what_was_said_comes_back(sequence: int, stamp: int, text: str) -> None:
    escaped = b"".join(
        bytes((byte,)) if 32 <= byte < 127 else b"\\x%02x" % byte for byte in text.encode("utf-8", "surrogatepass")
    )
    record = parse_record(b"6,%d,%d,-;%s\n" % (sequence, stamp, escaped))
    assert record is not None
    assert (record.sequence, record.stamp_us) == (sequence, stamp)
    assert record.text == text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def test_lines_of_syslog() -> None:
    raw = (
        b"<6>[    0.000000] Linux version\n<4>[12345.678901][    T7] with a caller\n"
        b"<30>[    1.000002][C12] \tindented\nno stamp\n<5>[1.2] short\n<6>[   99.000000] \n"
    )
    assert list(parse_syslog(raw)) == [
        LogRecord(None, 0, False, "Linux version"),
        LogRecord(None, 12_345_678_901, False, "with a caller"),
        LogRecord(None, 1_000_002, False, "\tindented"),
        LogRecord(None, 99_000_000, False, ""),
    ]


@pytest.mark.parametrize(
    ("priority", "error"), [(0, True), (3, True), (4, False), (6, False), (11, False), (30, False)]
)
def test_what_the_kernel_itself_calls_an_error(priority: int, error: bool) -> None:
    """11 is an error too, of a program that wrote into the log."""
    record = parse_record(b"%d,1,2,-;text\n" % priority)
    assert record is not None and record.error is error
    (line,) = parse_syslog(b"<%d>[    0.000000] text\n" % priority)
    assert line.error is error


@given(st.binary(max_size=400))
def test_no_text_breaks_the_parser_of_syslog(raw: bytes) -> None:
    assert all(record.stamp_us >= 0 for record in parse_syslog(raw))
