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
            facts = cls(**known)
            facts._check()
            return facts
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError("no facts of a recording") from error

    def _check(self) -> None:
        """Raises ValueError or TypeError where a fact is of another kind than it should be."""
        texts = (self.node, self.boot_id, self.kernel, self.arch, self.event_source, self.exhume_version, self.timezone)
        # Joining and encoding fails for what is not text, a lone surrogate among it.
        "".join((*texts, *self.sources_missing)).encode()
        for number in (self.cores, self.rate_hz, self.format_version, self.page_bytes or 0):
            if not isinstance(number, int) or not 0 <= number < 1 << 63:
                raise ValueError(f"{number!r} is not a number of a recording")
