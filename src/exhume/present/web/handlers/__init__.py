"""Handlers: functions from a recording and query parameters to an answer, found by `module.function`.

They run in workers; the server process imports none of them.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from exhume.model.errors import ExhumeError, NoData, RecordingError, UsageError
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import QueryParams, RecordingParams, Refusal
from exhume.present.web.schemas import CLIENT_CLOSED_REQUEST, Reply, json_reply
from exhume.present.web.source import RecordingSource, Source
from exhume.store.read.progress import Cancelled

TOO_LARGE = json_reply(
    {"detail": "this takes more memory than one answer may: choose a shorter time or fewer cores"}, 413
)


def load() -> None:
    """Import every handler, so that workers share their pages."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def load_deferred() -> None:
    """Import what the first view does not need: the diagnosis, the formats of exports, and what Arrow loads with the
    first grouping of rows and the first numpy array that it is given, 5 MB of each worker else."""
    own = ("diagnose.engine", "interop.folded", "interop.pprof", "interop.speedscope", "present.flame")
    for module in (*(f"exhume.{name}" for name in own), "numpy.ma", "pyarrow.acero"):
        import_module(module)


def open_handle(source: Source) -> RecordingHandle:
    """The recording of a directory, for one worker."""
    if isinstance(source, RecordingSource):
        return RecordingHandle(source.directory, None if source.compared is None else RecordingHandle(source.compared))
    return RecordingHandle(Path(source))


def execute(handle: Any, name: str, params: QueryParams, package: str = __name__) -> Any:
    """Run a handler of a package; a refusal, and what the user can do something about, is a reply."""
    module, _, function = name.partition(".")
    handler = getattr(import_module(f"{package}.{module}"), function)
    try:
        if isinstance(params, RecordingParams) and params.recording == "other":
            handle = handle.other()
        return handler(handle, params)
    except Cancelled:
        return Reply(b"", status=CLIENT_CLOSED_REQUEST)
    except ExhumeError as error:
        if isinstance(error, Refusal):
            status = error.status
        else:
            nothing = isinstance(error, (RecordingError, NoData))
            status = 422 if isinstance(error, UsageError) else 404 if nothing else 500
        return json_reply({"detail": str(error)}, status)
