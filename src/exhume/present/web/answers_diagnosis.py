"""A diagnosis as an answer: of a window, or of an incident."""

from pathlib import Path

from starlette.responses import Response

from exhume.model.clock import MILLIS
from exhume.model.window import Window
from exhume.present.web.asked import refuse, window_of
from exhume.present.web.diagnosed import diagnosed, told
from exhume.present.web.opened import opened_at

AROUND_MS = 120_000
LONGEST_MS = 24 * 3_600_000
JSON = "application/json"


def diagnosed_in(directory: Path, since: int | None, until: int | None, at: int | None) -> Response:
    here = opened_at(directory)
    recording = here.recording()
    if at is not None and since is None and until is None:
        since, until = max(0, at - AROUND_MS), at + AROUND_MS
    window = window_of(here, since, until)
    if window.nanos > LONGEST_MS * MILLIS:
        raise refuse(413, "a diagnosis looks at a day at most: choose a shorter time")
    if window.empty:
        raise refuse(404, "nothing was recorded in that time: choose another")
    found = diagnosed(recording, window, None if at is None else at * MILLIS)
    return Response(told(found), media_type=JSON)


def explained(directory: Path, window: Window, at: int) -> Response:
    here = opened_at(directory)
    clamped = window.clamp(here.span())
    if clamped.empty:
        raise refuse(404, "nothing was recorded in that time: choose another")
    return Response(told(diagnosed(here.recording(), clamped, at)), media_type=JSON)
