"""The data source of a page's server. Importing it loads no library into the server process."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordingSource:
    """The directory of a recording, and of another recording to compare it with."""

    directory: Path
    compared: Path | None = None


#: What the handlers of a page open: a recording, or the data source of another package.
Source = RecordingSource | Path | str
