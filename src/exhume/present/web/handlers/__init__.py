"""Handlers: functions from a recording and query parameters to an answer, found by `module.function`.

They run in workers; the server process imports none of them.
"""

from importlib import import_module
from typing import Any

from exhume.model.errors import ExhumeError, RecordingError, UsageError
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import QueryParams
from exhume.present.web.reply import CLIENT_CLOSED_REQUEST, Refusal, Reply, problem
from exhume.store.read.progress import Cancelled

MODULES = ("diagnosis", "events", "lanes", "processes", "recording", "stacks", "timeline")
TOO_LARGE = problem(413, "this takes more memory than one answer may: choose a shorter time or fewer cores")


def load() -> None:
    """Import every handler, so that workers share their pages."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")


def load_deferred() -> None:
    """Import what the first view does not need: the diagnosis and the formats of exports."""
    import_module("exhume.diagnose.engine")
    import_module("exhume.present.web.exports")


def execute(handle: RecordingHandle, name: str, params: QueryParams) -> Any:
    """Run a handler; a refusal, and what the user can do something about, is a reply."""
    module, _, function = name.partition(".")
    handler = getattr(import_module(f"{__name__}.{module}"), function)
    try:
        return handler(handle, params)
    except Refusal as error:
        return problem(error.status, str(error))
    except Cancelled:
        return Reply(b"", status=CLIENT_CLOSED_REQUEST)
    except UsageError as error:
        return problem(422, str(error))
    except RecordingError as error:
        return problem(404, str(error))
    except ExhumeError as error:
        return problem(500, str(error))
