"""Handlers of the fleet page: functions from a lake and parameters to an answer, found by `module.function`; requests
of the pages of incidents go on to the handlers of recordings.

They run in workers; the server process imports none of them.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from exhume.model.settings import S3_ENDPOINT
from exhume.present.fleet.lake import LakeHandle
from exhume.present.fleet.params import BundleParams
from exhume.present.web import handlers as recording_handlers
from exhume.present.web.params import QueryParams
from exhume.present.web.schemas import json_reply

TOO_LARGE = json_reply({"detail": "this takes more memory than one answer may: compact the lake, or ask for less"}, 413)


def load() -> None:
    """Import every handler of the fleet page, so that workers share their pages."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


def load_deferred() -> None:
    """Import what the pages of incidents need."""
    recording_handlers.load()
    recording_handlers.load_deferred()


def open_handle(source: Path | str) -> LakeHandle:
    """A lake, for one worker; the address of its object store is in the environment."""
    return LakeHandle(source, S3_ENDPOINT.from_environment())


def execute(handle: LakeHandle, name: str, params: QueryParams) -> Any:
    """Run a handler of the fleet page, or of the page of a bundle's recording."""
    if isinstance(params, BundleParams):
        return recording_handlers.execute(handle.recording(params.directory), name, params.inner)
    return recording_handlers.execute(handle, name, params, __name__)
