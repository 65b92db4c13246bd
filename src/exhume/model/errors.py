"""Errors for users: each message says what is wrong and what to do about it."""

from exhume.model.facts import MissingSource


class ExhumeError(Exception):
    """Base of every error that is shown as one sentence instead of a traceback."""


class UsageError(ExhumeError):
    """An invalid argument or setting (a bad time, an unknown name)."""


class NoData(ExhumeError):
    """There is nothing to work on. Commands exit with 3."""


class RecordingError(ExhumeError):
    """A recording that can't be opened, read or written."""


class NoRecording(RecordingError, NoData):
    """The directory holds no recording, or one without a readable second."""


class DirectoryBusy(RecordingError):
    """Another recorder holds the directory."""


class LabError(ExhumeError):
    """The lab can't create, use or remove a pathology here."""


class SourceUnavailable(ExhumeError):
    """Raised by a source that does not work on this node; the recorder continues without it."""

    def __init__(self, source: str, reason: str, remedy: str) -> None:
        self.missing = MissingSource(source, reason, remedy)
        super().__init__(str(self.missing))


def os_reason(error: OSError) -> str:
    """Why the system refused something, in lower case, for a message."""
    return (error.strerror or str(error)).lower()
