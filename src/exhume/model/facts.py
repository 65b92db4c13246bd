"""Facts about a whole recording: the node it comes from, and how it was taken."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class MissingSource:
    """A source that is disabled: why, and the capability, mount or setting that would enable it."""

    source: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}" + (f"; {self.remedy}" if self.remedy else "")

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any] | str) -> "MissingSource":
        """Parse a stored entry: an object, or in recordings of exhume 0.1 the string `source: reason; remedy`."""
        if isinstance(stored, str):
            source, _, rest = stored.partition(": ")
            reason, _, remedy = rest.rpartition("; ")
            return cls(source, reason or remedy, remedy if reason else "")
        return cls(str(stored["source"]), str(stored["reason"]), str(stored.get("remedy", "")))


@dataclass(frozen=True, slots=True)
class RecordingFacts:
    """Facts about a recording, written into every file, so that a file on its own still identifies its recording."""

    node: str
    boot_id: str
    cores: int
    kernel: str
    arch: str
    event_source: str
    rate_hz: int
    sources_missing: list[MissingSource] = field(default_factory=list)
    exhume_version: str = ""
    timezone: str = "UTC"
    # Absent from recordings of early versions.
    page_bytes: int | None = None
    # The recorder's nice value.
    nice: int | None = None
    # Where cgroups with the cpu controller are mounted, and the version of that hierarchy.
    cpu_cgroups: str | None = None
    cpu_cgroup_version: int | None = None
    # Labels of the node, as set by its operator: pool, zone.
    labels: dict[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def missing(self, *sources: str) -> list[MissingSource]:
        """The missing sources among those given."""
        return [each for each in self.sources_missing if each.source in sources]

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "RecordingFacts":
        """Parse facts; those that a later version added are ignored. Raises ValueError for anything else."""
        try:
            found = json.loads(text)
            known = {f.name: found[f.name] for f in fields(cls) if f.name in found}
            known["sources_missing"] = [MissingSource.from_stored(each) for each in known.get("sources_missing", ())]
            facts = cls(**known)
            facts._check()
            return facts
        except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError("no facts of a recording") from error

    def _check(self) -> None:
        """Raise ValueError or TypeError if a fact has the wrong type."""
        texts = (self.node, self.boot_id, self.kernel, self.arch, self.event_source, self.exhume_version, self.timezone)
        # Joining and encoding raises for anything but valid text, including lone surrogates.
        labels = [text for label in self.labels.items() for text in label]
        "".join((*texts, *labels, *map(str, self.sources_missing))).encode()
        if not isinstance(self.cpu_cgroups or "", str):
            raise TypeError(f"{self.cpu_cgroups!r} is not a path")
        optional = (self.page_bytes or 0, self.cpu_cgroup_version or 0)
        for number in (self.cores, self.rate_hz, self.format_version, *optional):
            if not isinstance(number, int) or not 0 <= number < 1 << 63:
                raise ValueError(f"{number!r} is not a number of a recording")
