"""Events reported by other programs (a failed job, a deployment, a note), and their format on the recorder's socket.

One datagram is one event: a JSON object with `version`, `kind` and `text`, and optionally `at` (wall time,
nanoseconds), `node` and `attributes`. All of it is untrusted: it is bounded in size, and kinds come from a fixed list,
so that no sender can impersonate the kernel log or the recorder. Standard library only.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exhume.model.redaction import redact_line

VERSION = 1
JOB_FAILED, ACTOR_FAILED, NODE_FAILED = "job-failed", "actor-failed", "node-failed"
DEPLOYMENT, NOTE = "deployment", "note"
FAILURES = (JOB_FAILED, ACTOR_FAILED, NODE_FAILED)
# The severity of each kind.
KINDS: Mapping[str, str] = {**dict.fromkeys(FAILURES, "error"), DEPLOYMENT: "info", NOTE: "info"}
# The source column of their rows.
SOURCE = "jobs"
DEFAULT_SOCKET = Path("/run/exhume/events.sock")
MAX_BYTES = 8192
MAX_TEXT, MAX_ATTRIBUTES, MAX_NAME, MAX_VALUE = 1000, 16, 40, 200
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class BadEvent(ValueError):
    """A datagram that is not a valid event; the message says why."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A reported event. `at` is wall time in nanoseconds, None for the time of arrival; `node` is where it happened,
    empty for the recorder's node."""

    kind: str
    text: str
    at: int | None = None
    node: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises BadEvent."""
        if self.kind not in KINDS:
            raise BadEvent(f"{self.kind[:MAX_NAME]!r} is not a kind of event; choose from {', '.join(KINDS)}")
        if not _bounded(self.text, MAX_TEXT):
            raise BadEvent("an event needs a text")
        if len(self.attributes) > MAX_ATTRIBUTES:
            raise BadEvent(f"an event has at most {MAX_ATTRIBUTES} attributes")
        for name in self.attributes:
            if len(name) > MAX_NAME or not _NAME.fullmatch(name):
                raise BadEvent(f"{name[:MAX_NAME]!r} is not the name of an attribute: letters, digits, '_', '.', '-'")
        if self.at is not None and not 0 <= self.at < 1 << 62:
            raise BadEvent("the time of the event is out of range")

    def encode(self) -> bytes:
        """Encode as a datagram; long texts and values are truncated."""
        known = {
            "version": VERSION,
            "kind": self.kind,
            "text": _bounded(self.text, MAX_TEXT),
            "at": self.at,
            "node": _bounded(self.node, MAX_VALUE),
            "attributes": {name: _bounded(value, MAX_VALUE) for name, value in self.attributes.items()},
        }
        datagram = json.dumps(known, ensure_ascii=False).encode(errors="replace")
        if len(datagram) > MAX_BYTES:
            raise BadEvent(f"the event takes more than {MAX_BYTES} bytes; give it fewer attributes")
        return datagram

    @classmethod
    def decode(cls, datagram: bytes) -> "JobEvent":
        """Parse a datagram. Raises BadEvent."""
        try:
            known = json.loads(datagram)
            if known["version"] != VERSION:
                raise BadEvent("an event of another version")
            at = known.get("at")
            attributes = {str(name): str(value) for name, value in (known.get("attributes") or {}).items()}
            at = None if at is None else int(at)
            return cls(str(known["kind"]), str(known["text"]), at, str(known.get("node") or ""), attributes)
        except BadEvent:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise BadEvent("not an event") from error

    @property
    def job(self) -> str | None:
        """The job that the event is about: its attribute `job`."""
        return _bounded(self.attributes.get("job", ""), MAX_VALUE) or None

    @property
    def member(self) -> str | None:
        """The node on which it happened; None if it is the recorder's."""
        return _bounded(self.node, MAX_VALUE) or None

    def line(self, *, keep_secrets: bool = False) -> str:
        """The recorded text: one line of bounded length, with `name=value` for the attributes."""
        text = _bounded(self.text, MAX_TEXT)
        details = {"node": self.node, **self.attributes} if self.node else self.attributes
        parts = [text, *(f"{name}={_bounded(value, MAX_VALUE)}" for name, value in details.items())]
        first, *values = parts if keep_secrets else map(redact_line, parts)
        return f"{first} ({', '.join(values)})" if values else first


def _bounded(text: str, most: int) -> str:
    """Reduce to one line of at most this many characters; control characters become spaces."""
    clean = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * most]).split())
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
