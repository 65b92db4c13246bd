"""Verified fixes with made-up observations, for the tests of their reports."""

import numpy as np

from exhume.model.clock import NANOS
from exhume.model.remedy import Effect, Measure, Verification
from exhume.remedy.verify.judge import judge
from exhume.remedy.verify.measures import Series
from exhume.remedy.verify.proof import Proof

APPLIED = 1_780_000_020 * NANOS
NASTY = "</style><script>alert(1)</script>\x1b[31m" + "x" * 200


def observed(measure, values, expected, subject="", span=1.0) -> Series:
    values = tuple(float(value) for value in values)
    effect = Effect(measure, expected, subject)
    return Series(effect, "live", APPLIED, APPLIED + 60 * NANOS, values, (span,) * len(values))


def proof_of(*pairs) -> Proof:
    verification = Verification(
        NASTY, "20260528-202700-0001", NASTY, APPLIED, APPLIED, APPLIED + 60 * NANOS,
        tuple(judge(*pair) for pair in pairs), (NASTY,), blind_spots=("what else happened",),
    )  # fmt: skip
    return Proof(verification, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def pair(measure, before, since, expected="fall", subject=""):
    return observed(measure, before, expected, subject), observed(measure, since, expected, subject)


def mixed_proof() -> Proof:
    """One measure of each kind of change, in the order improved, improved, worse, not proven."""
    rng = np.random.default_rng(1)
    return proof_of(
        pair(Measure.RESTARTS, np.arange(60) % 2, np.zeros(60), "stop", NASTY),
        pair(Measure.FORKS, rng.poisson(2000, 1000), rng.poisson(8, 60)),
        pair(Measure.RECLAIM, rng.poisson(80, 60), rng.poisson(9000, 60), "stay"),
        pair(Measure.NIC_TIMEOUTS, np.zeros(60), ()),
    )
