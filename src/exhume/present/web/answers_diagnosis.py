"""What starved the node in a window, as the page is told."""

from datetime import UTC
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from exhume.model.clock import MILLIS
from exhume.model.finding import Diagnosis, Link
from exhume.model.window import Window
from exhume.present.diagnosis_json import diagnosis_json
from exhume.present.web.asked import ms, refuse, window_of
from exhume.present.web.opened import opened_at
from exhume.store.remembered import Remembered

AROUND_MS = 120_000
LONGEST_MS = 24 * 3_600_000


def diagnosed(directory: Path, since: int | None, until: int | None, at: int | None) -> Response:
    here = opened_at(directory)
    recording = here.recording()
    if at is not None and since is None and until is None:
        since, until = max(0, at - AROUND_MS), at + AROUND_MS
    window = window_of(here, since, until)
    if window.nanos > LONGEST_MS * MILLIS:
        raise refuse(413, "a diagnosis looks at a day at most: choose a shorter time")
    if window.empty:
        raise refuse(404, "nothing was recorded in that time: choose another")
    # Loaded when it is asked for: the first view does not wait for it.
    from exhume.diagnose.engine import diagnose

    found = diagnose(Remembered(recording), window, at=None if at is None else at * MILLIS)
    return JSONResponse(with_numbers(found))


def with_numbers(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis with its times as numbers too."""
    told = diagnosis_json(found, UTC)
    for name, span in (("window", found.window), ("focus", found.focus), ("baseline", found.baseline)):
        if told[name] is not None:
            told[name] |= _span(Window(*span))
    for finding, shape in zip(found.findings, told["findings"], strict=True):
        _number_links(finding.chain, shape["chain"])
    _number_links(found.symptoms, told["symptoms"])
    return told


def _number_links(links: Any, shapes: list[dict[str, Any]]) -> None:
    link: Link
    for link, shape in zip(links, shapes, strict=True):
        shape["at_ms"] = ms(link.at)
        for evidence, told in zip(link.evidence, shape["evidence"], strict=True):
            told.update(_span(Window(evidence.since, evidence.until)))


def _span(window: Window) -> dict[str, int]:
    return {"since_ms": ms(window.since), "until_ms": ms(window.until)}
