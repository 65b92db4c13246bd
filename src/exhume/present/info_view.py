"""The view of a recording as a whole: `exhume info --json`."""

from datetime import tzinfo
from typing import Any

from exhume.model.facts import RecordingFacts
from exhume.present.serializer import Shape, Shapes, to_json
from exhume.store.read.info import RecordingInfo, SelfCost

JSON_VERSION = 2


def info_json(info: RecordingInfo, zone: tzinfo | None, *, live: bool, sealed: bool) -> dict[str, Any]:
    """The documented shape of `exhume info --json`."""
    return {
        "version": JSON_VERSION,
        **to_json(info.facts, zone, _SHAPES),
        "live": live,
        "sealed": sealed,
        **to_json(info, zone, _SHAPES),
    }


_SHAPES: Shapes = {
    RecordingFacts: Shape(omit=("page_bytes",)),
    RecordingInfo: Shape(omit=("facts",)),
    SelfCost: Shape(omit=("seconds", "rss_kb_max"), add=lambda cost, _: {"rss_bytes_max": cost.rss_kb_max * 1024}),
}
