"""What the server of a page reads. The server process loads no library for it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordingSource:
    """The directory of a recording, and that of another one to compare it with."""

    directory: Path
    compared: Path | None = None


#: What handlers of a page open: a recording, or what those of another package read.
Source = RecordingSource | Path | str
