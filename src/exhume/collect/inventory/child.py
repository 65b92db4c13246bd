"""The process that reads sections of the inventory for the recorder. Arguments: the recorder's pid, the node's root,
and the sections.

Each section is a line on standard output with tab-separated fields: its name, a digest of the content that warrants a
new row, what is missing (JSON), the size of its content, and how many bytes of it follow. Then comes the content
(JSON), compressed, as the recorder keeps it. A slow systemd or container runtime delays only this process.
"""

import hashlib
import json
import signal
import sys
import zlib
from pathlib import Path
from typing import Any

from exhume.collect.inventory.reader import Section, read_sections
from exhume.collect.node_root import NodeRoot
from exhume.model.inventory import bucket
from exhume.model.inventory.codec import missing_text, section_text
from exhume.model.process import end_with

# Limit for a section as text; a larger one is reported as missing.
MOST_BYTES = 4 << 20
# Fields that differ between any two reads of the same state.
_MOVING = frozenset(("age_s", "history", "at", "uptime_s", "booted_at", "created", "started"))


def main() -> None:
    parent, root, names = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    if not end_with(parent):
        return
    # Ctrl-C is meant for the recorder, which stops this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for section in read_sections(NodeRoot(root), names):
        sys.stdout.buffer.write(packed(section))
        sys.stdout.buffer.flush()


def packed(section: Section) -> bytes:
    content = "" if section.value is None else section_text(section.name, section.value)
    missing = missing_text(section.missing) if section.missing else ""
    if len(content) > MOST_BYTES:
        detail = f"{len(content) >> 20} MiB are more than the {MOST_BYTES >> 20} that are recorded"
        missing, content = json.dumps([{"section": section.name, "reason": "truncated", "detail": detail}]), ""
    data = content.encode()
    body = zlib.compress(data, 6)
    head = (section.name, stable_digest(content, missing), missing, str(len(data)), str(len(body)))
    return "\t".join(head).encode() + b"\n" + body


def stable_digest(content: str, missing: str) -> str:
    """A digest that is equal for two reads of an unchanged node: without times, ages and counters."""
    still = json.dumps([_still(json.loads(text)) if text else None for text in (content, missing)], sort_keys=True)
    return hashlib.blake2b(still.encode(), digest_size=8).hexdigest()


def _still(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _still(each) for name, each in value.items() if name not in _MOVING}
        if isinstance(restarts := kept.get("restarts"), int):
            kept["restarts"] = bucket(restarts)
        return kept
    return [_still(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
