"""Errors that a person reads: each says what is wrong and what to do about it."""

from dataclasses import dataclass


class ExhumeError(Exception):
    """The base of every error that is shown as one sentence instead of a traceback."""


class UsageError(ExhumeError):
    """What was asked for makes no sense (a bad time, an unknown name)."""


class RecordingError(ExhumeError):
    """A recording that can't be opened, read or written."""


class DirectoryBusy(RecordingError):
    """Another recorder holds the directory."""


class LabError(ExhumeError):
    """The lab can't make, use or remove a pathology here."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a source is off, and the capability, mount or setting that would bring it back."""

    source: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}; {self.remedy}"


class SourceUnavailable(ExhumeError):
    """Raised by a source that can't work on this node; the rest of the recorder runs on."""

    def __init__(self, source: str, reason: str, remedy: str) -> None:
        self.missing = Missing(source, reason, remedy)
        super().__init__(str(self.missing))
