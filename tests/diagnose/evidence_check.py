"""Evidence, computed again from the store by its own description alone: what a diagnosis quotes has to be there.

assert not untrue(recording, diagnosis)
"""

import math
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exhume.diagnose.evidence.samples import Names, Samples
from exhume.model.clock import Window
from exhume.model.finding import Diagnosis, Evidence
from exhume.store.read.recording import Recording

LIVE = "live"
# Values are quoted rounded: to a tenth of a percent of a core, or of themselves.
ROUNDING = 2e-3


def evidence_in(diagnosis: Diagnosis) -> list[Evidence]:
    """Everything that a diagnosis quotes."""
    links = [link for finding in diagnosis.findings for link in finding.chain] + diagnosis.symptoms
    return list(dict.fromkeys(each for link in links for each in link.evidence))


def untrue(recording: Recording, diagnosis: Diagnosis) -> list[str]:
    """What is quoted and can't be found again, in words; nothing where all is true."""
    wrong, reads = [], Reads(recording)
    for evidence in evidence_in(diagnosis):
        if evidence.table == LIVE:
            continue
        value = _recompute(reads, evidence)
        if not same(value, evidence.value):
            wrong.append(f"{evidence} is quoted, and {value!r} is recorded")
    return wrong


class Reads:
    """What is read of a recording, once for all evidence about the same time: a diagnosis quotes many values of few
    windows."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.samples = cache(lambda window: Samples.read(recording, window))

        @cache
        def rows(table: str, window: Window, cpu: int | None) -> pa.Table:
            found = recording.read(table, window, cpus=None if cpu is None else {cpu})
            within = _within(found, window)
            return found.filter(within).take(np.argsort(_walls(found)[within], kind="stable"))

        self.rows = rows


def recompute(recording: Recording, evidence: Evidence) -> float | int | str | None:
    """The value that the recording gives for a description; None where it has no such rows."""
    return _recompute(Reads(recording), evidence)


def _recompute(reads: Reads, evidence: Evidence) -> float | int | str | None:
    window = Window(evidence.since, evidence.until)
    assert not window.empty, f"{evidence} is about no time"
    if evidence.functions or evidence.how == "share":
        return _sampled(reads, evidence, window)
    rows = reads.rows(evidence.table, window, evidence.cpu)
    for column, text in evidence.match:
        reported = rows.column(column).to_pylist()
        rows = rows.filter(pa.array([("" if value is None else str(value)) == text for value in reported], pa.bool_()))
    return _taken_together(rows.column(evidence.column), evidence.how)


def same(one: float | int | str | None, other: float | int | str | None) -> bool:
    if one is None or other is None or isinstance(one, str) or isinstance(other, str):
        return one == other
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)


def _walls(rows: pa.Table) -> np.ndarray:
    return rows.column("wall").to_numpy().astype(np.int64)


def _within(rows: pa.Table, window: Window) -> np.ndarray:
    # Tables that explain other rows come whole.
    walls = _walls(rows)
    return (walls >= window.since) & (walls < window.until)


def _taken_together(column: pa.ChunkedArray, how: str) -> float | int | str | None:
    if how == "count":
        return len(column)
    known = pc.drop_null(column)
    if not len(known):
        return None
    take = {
        "max": pc.max,
        "min": pc.min,
        "sum": pc.sum,
        "mean": pc.mean,
        "first": lambda values: values[0],
        "last": lambda values: values[-1],
    }[how]
    return take(known).as_py()


def _sampled(reads: Reads, evidence: Evidence, window: Window) -> float | int | None:
    sampled = reads.samples(window)
    mask = sampled.within(window).copy()
    if evidence.functions:
        mask &= sampled.holding(Names.of(evidence.functions))
    if evidence.cpu is not None:
        mask &= sampled.cpu == evidence.cpu
    for column, text in evidence.match:
        assert column in ("comm", "pid"), f"samples can't be matched by {column}"
        mask &= sampled.of_comms([text]) if column == "comm" else sampled.pid == int(text)
    if evidence.how == "count":
        return int(mask.sum())
    used = float(sampled.weight[mask].sum())
    if evidence.how == "sum":
        return used
    assert evidence.how == "share", f"samples can't be taken together by {evidence.how}"
    cores = 1 if evidence.cpu is not None else max(1, reads.recording.facts.cores)
    return min(1.0, used / 1e6 / window.seconds / cores)
