"""/proc/PID/mountinfo."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from exhume.procfs.mountinfo import parse_mountinfo, read_mounts

LINE = rb"36 35 98:0 /mnt1 /mnt\040two rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw,errors=continue"


def test_a_line_with_optional_fields_and_a_blank_in_the_path() -> None:
    (mount,) = parse_mountinfo(LINE + b"\n")
    assert (mount.device, mount.root, mount.point) == ((98, 0), "/mnt1", "/mnt two")
    assert (mount.kind, mount.source, mount.options) == ("ext3", "/dev/root", {"rw", "errors=continue"})
    assert mount.option("errors") == "continue"
    assert mount.option("rw") is None


def test_bytes_that_are_no_text_survive() -> None:
    (mount,) = parse_mountinfo(LINE.replace(rb"\040two", b"\xff"))
    assert mount.point.encode("utf-8", "surrogateescape") == b"/mnt\xff"


def test_truncated_lines_are_left_out() -> None:
    end = LINE.index(b"/dev/root")
    assert [parse_mountinfo(LINE[:length]) for length in range(end)] == [[]] * end


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_every_path_comes_back(name: str) -> None:
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in name)
    (mount,) = parse_mountinfo(f"1 1 0:1 / /{escaped} rw - tmpfs none rw".encode())
    assert mount.point == f"/{name}"


@given(st.binary(max_size=200))
def test_no_content_breaks_the_parser(content: bytes) -> None:
    parse_mountinfo(content)


def test_our_own_mounts(tmp_path: Path) -> None:
    assert any(mount.point == "/proc" and mount.kind == "proc" for mount in read_mounts(Path("/proc/self/mountinfo")))
    assert read_mounts(tmp_path / "absent") == []
