"""A diagnosis as the page is told it: the shape of `exhume diagnose --json`, with every time as a number, too."""

import json
from datetime import UTC
from typing import Any

from exhume.model.clock import MILLIS
from exhume.model.finding import Diagnosis, Link
from exhume.model.window import Window
from exhume.present.diagnosis_json import diagnosis_json
from exhume.store.read.cached import Remembered
from exhume.store.read.recording import Recording


def diagnosed(recording: Recording, window: Window, at: int | None) -> Diagnosis:
    """What starved the node in a window, or nearest to a moment in it."""
    # Loaded when it is asked for: the first view does not wait for it.
    from exhume.diagnose.engine import diagnose

    return diagnose(Remembered(recording), window, at=at)


def told(found: Diagnosis) -> bytes:
    """The diagnosis on the wire."""
    return json.dumps(with_numbers(found), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def with_numbers(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis with its times as numbers too."""
    shape = diagnosis_json(found, UTC)
    for name, span in (("window", found.window), ("focus", found.focus), ("baseline", found.baseline)):
        if shape[name] is not None:
            shape[name] |= _span(Window(*span))
    for finding, each in zip(found.findings, shape["findings"], strict=True):
        _number_links(finding.chain, each["chain"])
    _number_links(found.symptoms, shape["symptoms"])
    return shape


def _number_links(links: Any, shapes: list[dict[str, Any]]) -> None:
    link: Link
    for link, shape in zip(links, shapes, strict=True):
        shape["at_ms"] = link.at // MILLIS
        for evidence, each in zip(link.evidence, shape["evidence"], strict=True):
            each.update(_span(Window(evidence.since, evidence.until)))


def _span(window: Window) -> dict[str, int]:
    return {"since_ms": window.since // MILLIS, "until_ms": window.until // MILLIS}
