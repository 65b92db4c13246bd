"""Cores x time, from what is remembered of whole seconds or, close up, from the rows themselves."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from starlette.responses import Response

from exhume.present.web.asked import Asking, ms, refuse
from exhume.present.web.framed import framed
from exhume.present.web.limits import check_samples
from exhume.present.web.opened import Opened, opened_at
from exhume.present.web.readers import Ask
from exhume.present.web.seconds import Pooled
from exhume.store.read.core_grid import GAP, STATES
from exhume.store.read.stacks import SAMPLED_STATES

# A byte holds half percents and less; the last value says that nothing was recorded.
FULL, UNRECORDED = 250, 255
SAMPLED_MEASURES = ("busy", *SAMPLED_STATES)


def closely(directory: Path, asking: Asking, cells: int, measure: str) -> Response:
    return from_seconds(opened_at(directory), None, asking, cells, measure)


def from_seconds(here: Opened, ask: Ask | None, asking: Asking, cells: int, measure: str) -> Response:
    question = asking.of(here)
    recording, window = question.recording, question.window
    if question.filtered:
        if measure not in SAMPLED_MEASURES:
            raise refuse(422, f"a filter looks at samples, which tell {', '.join(SAMPLED_MEASURES)}, not {measure}")
        check_samples(recording, window, "a filter looks at every sample")
        wanted = replace(question.wanted, state=None if measure == "busy" else measure)
        pooled = here.seconds.matching(recording, window, cells, wanted, ask)
    else:
        pooled = here.seconds.measured(recording, window, cells, measure, ask)
    return heatmap(pooled, cells, "matching" if question.filtered and measure == "busy" else measure, question.cpus)


def heatmap(pooled: Pooled, cells: int, measure: str, cpus: frozenset[int] | None) -> Response:
    """Pooled cells on the wire."""
    lines = [i for i, cpu in enumerate(pooled.cpus) if cpus is None or cpu in cpus]
    values, states = pooled.values[lines], pooled.states[lines]
    scaled = np.minimum(values.astype(np.int32) * FULL // 1000, FULL)
    # What is there, however little, is not nothing.
    scaled = np.where((values > 0) & (scaled == 0), 1, scaled)
    header = {
        "since": ms(pooled.window.since),
        "until": ms(pooled.window.until),
        "cells": cells,
        "cpus": [pooled.cpus[i] for i in lines],
        "measure": measure,
        "full": FULL,
        "unrecorded": UNRECORDED,
        "states": list(STATES),
    }
    return framed(
        header,
        np.where(values == GAP, UNRECORDED, scaled).astype(np.uint8),
        np.where(states == GAP, UNRECORDED, states).astype(np.uint8),
    )
