"""A finding that is only an effect of another one is dropped: by shared samples, or by the entities they name."""

import numpy as np
import pytest

from exhume.diagnose.engine import settle
from exhume.diagnose.evidence.builder import Found
from exhume.model.finding import Culprit, Finding, Severity, process_entity


def found(cause: str, comm: str, share: float, *, confidence: float = 0.8, samples: int = 100) -> Found:
    finding = Finding(
        cause,
        "",
        Severity.WARNING,
        confidence,
        f"{comm} is behind it",
        (),
        Culprit(comm=comm),
        entities=(process_entity(comm),),
    )
    mask = np.zeros(samples, np.bool_)
    mask[: round(share * samples)] = True
    return Found(finding, mask, share * 10)


def causes(*each: Found) -> set[str]:
    kept, dropped = settle(list(each))
    assert len(kept) + len(dropped) == len(each)
    return {one.finding.cause for one in kept}


@pytest.mark.parametrize(
    ("share", "maker", "left"),
    [
        (0.6, "other", {"netns-cleanup"}),
        (0.4, "maker", {"netns-cleanup"}),
        (0.4, "other", {"netns-cleanup", "fork-storm"}),
        (0.1, "maker", {"netns-cleanup", "fork-storm"}),
    ],
)
def test_samples_in_common_decide_and_the_process_helps(share: float, maker: str, left: set[str]) -> None:
    assert causes(found("netns-cleanup", maker, share), found("fork-storm", "maker", 1.0)) == left


@pytest.mark.parametrize(("name", "left"), [("agent", {"oom-thrash"}), ("other", {"oom-thrash", "crash-loop"})])
def test_a_loop_without_samples_is_explained_by_a_finding_that_names_it(name: str, left: set[str]) -> None:
    loop = found("crash-loop", "agent", 0.0)
    assert causes(found("oom-thrash", name, 0.5, confidence=0.9), loop) == left
