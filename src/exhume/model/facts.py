"""What is true of a whole recording: the node it comes from and how it was taken."""

import json
from dataclasses import asdict, dataclass, field, fields

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class RecordingFacts:
    """Written into every file, so that a file which strays from its directory still says where it comes from."""

    node: str
    boot_id: str
    cores: int
    kernel: str
    arch: str
    event_source: str
    rate_hz: int
    sources_missing: list[str] = field(default_factory=list)
    exhume_version: str = ""
    timezone: str = "UTC"
    # Earlier recordings do not tell it.
    page_bytes: int | None = None
    # The recorder's nice value.
    nice: int | None = None
    format_version: int = FORMAT_VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "RecordingFacts":
        """Facts that a later version added are ignored. Raises ValueError where the text is something else."""
        try:
            found = json.loads(text)
            known = {f.name: found[f.name] for f in fields(cls) if f.name in found}
            return cls(**known)
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError("no facts of a recording") from error
