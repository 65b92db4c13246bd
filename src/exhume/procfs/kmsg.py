"""Records of /dev/kmsg (kernel/printk/printk.c, info_print_ext_header and msg_print_ext_body):
`priority,sequence,microseconds,flags[,...];text`, then ` KEY=value` lines."""

import re
from typing import NamedTuple

_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


class LogRecord(NamedTuple):
    """One message; `stamp_us` is the log's own clock (local_clock), `continues` marks the rest of the line before."""

    sequence: int
    stamp_us: int
    continues: bool
    text: str


def parse_record(raw: bytes) -> LogRecord | None:
    """A record as it was read; None for anything that is not one."""
    head, separator, body = raw.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 4:
        return None
    try:
        sequence, stamp = int(fields[1]), int(fields[2])
    except ValueError:
        return None
    if sequence < 0 or stamp < 0:
        return None
    text = body.split(b"\n", 1)[0]
    if b"\\x" in text:
        # The kernel escapes what isn't printable ASCII, byte by byte: a tab, or the bytes of a UTF-8 letter.
        text = _ESCAPED.sub(lambda escape: bytes((int(escape[1], 16),)), text)
    return LogRecord(sequence, stamp, fields[3] == b"c", text.decode("utf-8", "replace"))
