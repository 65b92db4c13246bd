"""One record of /dev/kmsg: `priority,sequence,microseconds,flags[,...];text`, then ` KEY=value` lines."""

import re
from typing import NamedTuple

_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


class LogRecord(NamedTuple):
    """What the kernel said, and when by its own clock."""

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
        # The kernel escapes what isn't printable ASCII, byte by byte; a tab or a UTF-8 letter comes back here.
        text = _ESCAPED.sub(lambda escape: bytes((int(escape[1], 16),)), text)
    return LogRecord(sequence, stamp, fields[3] == b"c", text.decode("utf-8", "replace"))
