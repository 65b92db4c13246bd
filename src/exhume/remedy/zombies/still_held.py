"""Whether a step still has something to free, and why zombies are left when all is done."""

from collections.abc import Callable, Sequence

from exhume.model.remedy import Outcome, Status, Step
from exhume.model.text import count
from exhume.model.zombies import PAGE, ParentResidual, PinKind
from exhume.remedy.zombies.plan import make_plan
from exhume.remedy.zombies.situation import Situation


def _files_or_inodes(parent: ParentResidual) -> int:
    """On v2 a file remembers the cgroup that wrote it last, and keeps it, also once its pages are gone. Reclaim takes
    such files out of memory as well; where no page is left, they are what holds the dying."""
    if parent.file_bytes or parent.shmem_bytes or parent.anon_bytes or parent.swap_bytes:
        return parent.file_bytes
    return (parent.dying or 0) * PAGE


# What a step frees, by its action.
_FREES: dict[str, Callable[[ParentResidual], int]] = {
    "fadvise": lambda parent: parent.file_bytes,
    "reclaim": _files_or_inodes,
    "drop-caches": lambda parent: parent.file_bytes,
    "swap-through": lambda parent: parent.shmem_bytes + parent.anon_bytes,
    "swapoff": lambda parent: parent.swap_bytes,
}
_LEFT_UNDONE = {Status.REFUSED, Status.TIMED_OUT, Status.INTERRUPTED, Status.FAILED, Status.MANUAL}


def still_held(parents: Sequence[ParentResidual], step: Step) -> bool:
    """Whether any page that the step could free is still charged to a removed cgroup."""
    frees = _FREES.get(step.action)
    return frees is None or sum(frees(parent) for parent in parents) >= PAGE


def why_left(situation: Situation, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Reasons, from what is still charged and what was not done."""
    found = [
        f"{outcome.step.id}: {outcome.step.title}: {outcome.why}"
        for outcome in outcomes
        if outcome.status in _LEFT_UNDONE and still_held(situation.residuals, outcome.step)
    ]
    for file in situation.pins.files:
        if file.kind == PinKind.MLOCKED:
            names = ", ".join(f"{holder.comm} (pid {holder.pid})" for holder in file.holders)
            found.append(f"{names or 'a process'} keeps {count(file.pages, 'page')} of {file.path} locked in memory")
    return (*found, make_plan(situation).summary)
