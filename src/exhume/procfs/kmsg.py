"""Records of the kernel log, in the formats of /dev/kmsg and syslog(2).

/dev/kmsg (kernel/printk/printk.c, info_print_ext_header and msg_print_ext_body):
`priority,sequence,microseconds,flags[,...];text`, then ` KEY=value` lines. syslog(2) (record_print_text):
`<priority>[ seconds.microseconds] text` for each line, with a caller such as `[   T12]` after the time if the kernel
has CONFIG_PRINTK_CALLER.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_SYSLOG_LINE = re.compile(
    rb"^<(?P<priority>\d{1,4})>\[ {0,4}(?P<s>\d{1,12})\.(?P<us>\d{6})\](?:\[ *[TC]\d{1,10}\])? (?P<text>[^\n]*)",
    re.MULTILINE,
)
_KERN_ERR = 3
_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


class LogRecord(NamedTuple):
    """One message; `stamp_us` is in the log's own clock (local_clock), `continues` marks the rest of the previous line.
    Messages of syslog(2) have no sequence number. `error` is set at the kernel's level `err` or worse."""

    sequence: int | None
    stamp_us: int
    continues: bool
    text: str
    error: bool = False


def parse_record(raw: bytes) -> LogRecord | None:
    """Parse a record; None for anything that is not one."""
    head, separator, body = raw.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 4:
        return None
    try:
        priority, sequence, stamp = int(fields[0]), int(fields[1]), int(fields[2])
    except ValueError:
        return None
    if sequence < 0 or stamp < 0:
        return None
    text = body.split(b"\n", 1)[0]
    if b"\\x" in text:
        # The kernel escapes everything except printable ASCII, byte by byte: a tab, or the bytes of a UTF-8 letter.
        text = _ESCAPED.sub(lambda escape: bytes((int(escape[1], 16),)), text)
    return LogRecord(sequence, stamp, fields[3] == b"c", text.decode("utf-8", "replace"), _is_error(priority))


def parse_syslog(raw: bytes) -> Iterator[LogRecord]:
    """The lines in the result of SYSLOG_ACTION_READ_ALL, without those in another format."""
    for match in _SYSLOG_LINE.finditer(raw):
        stamp = int(match["s"]) * 1_000_000 + int(match["us"])
        text = match["text"].decode("utf-8", "replace")
        yield LogRecord(None, stamp, False, text, _is_error(int(match["priority"])))


def _is_error(priority: int) -> bool:
    """Decide by the level (include/linux/kern_levels.h, KERN_ERR). Lines written by programs have a facility other than
    0."""
    return 0 <= priority <= _KERN_ERR
