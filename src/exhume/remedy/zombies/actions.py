"""Carrying out the steps against zombies: each a row of batches, bounded in time, between which it may be left.

What a step changes for a while is in the journal first, and is undone when the step ends, however it ends.
"""

import errno
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from exhume.model.remedy import Step
from exhume.procfs.host import Host
from exhume.remedy.journal import Change, Journal
from exhume.remedy.swaps import is_on, swaps
from exhume.remedy.undo import undo
from exhume.remedy.worker import Crew, Done, JobFailed
from exhume.remedy.zombies.shelter import shelter
from exhume.remedy.zombies.steps import SWAPFILE

# A core is held for so long at a time.
BATCH_S = 1.0
_FILES_AT_A_TIME = 5_000
_RECLAIM_AT_A_TIME = 64 << 20
# Pages that were on their way to disk in one pass are free to go in the next; more than that is stubborn.
_PASSES_WITHOUT_SUCCESS = 2


@dataclass(frozen=True, slots=True)
class Bench:
    """What an action works with. `count` tells how many zombies there are now."""

    crew: Crew
    host: Host
    journal: Journal
    count: Callable[[], int | None]


Batches = Generator[Done, None, None]


def fadvise(step: Step, bench: Bench) -> Batches:
    """Let go of the cached pages of the named files."""
    at = 0
    while at < len(step.targets):
        files = step.targets[at : at + _FILES_AT_A_TIME]
        done = bench.crew.run({"job": "fadvise", "files": files}, BATCH_S)
        # At least one file further, so that a single slow one can't hold it up for ever.
        at += len(files) if done.complete else max(1, done.reached)
        yield _checked(done)


def reclaim(step: Step, bench: Bench) -> Batches:
    """Reclaim below the parents, without swapping out what lives there."""
    if not swaps(bench.host):
        yield from _reclaim_all(step, bench)
        return
    with shelter(step.targets, bench.journal, bench.crew, bench.host):
        yield from _reclaim_all(step, bench, " swappiness=0")


def drop_caches(step: Step, bench: Bench) -> Batches:
    """Drop the page cache. The kernel can't be stopped in it, so it is one batch."""
    yield _checked(bench.crew.run({"job": "drop-caches", "file": step.targets[0]}, None))


def swap_through(step: Step, bench: Bench) -> Batches:
    """Shared memory goes out to a swapfile of our own and comes back, charged to the parent that lives."""
    path = os.fspath(bench.journal.place / SWAPFILE)
    change = Change("swapfile", path)
    bench.journal.add(change)
    try:
        yield _checked(bench.crew.run({"job": "swapfile", "path": path, "size": step.bytes}, None))
        with shelter(step.targets, bench.journal, bench.crew, bench.host):
            yield from _reclaim_all(step, bench)
    finally:
        undo(bench.journal, [change], bench.crew, bench.host)


def swap_off(step: Step, bench: Bench) -> Batches:
    """Take each swap off, and put it on again."""
    priorities = {swap.path: swap.priority for swap in swaps(bench.host)}
    for path in step.targets:
        if path not in priorities:
            continue
        change = Change("swap-off", path, priority=priorities[path])
        bench.journal.add(change)
        try:
            while is_on(bench.host, path):
                # What came back to memory by the end of a batch stays there.
                yield _checked(bench.crew.run({"job": "swapoff", "path": path}, 10 * BATCH_S))
        finally:
            undo(bench.journal, [change], bench.crew, bench.host)


def clean_up(step: Step, bench: Bench) -> Batches:
    """Undo what an earlier run left."""
    undo(bench.journal, list(bench.journal.changes), bench.crew, bench.host)
    yield Done(True, 0, 0.0, 0.0)


ACTIONS: dict[str, Callable[[Step, Bench], Batches]] = {
    "fadvise": fadvise,
    "reclaim": reclaim,
    "drop-caches": drop_caches,
    "swap-through": swap_through,
    "swapoff": swap_off,
    "clean-up": clean_up,
}


def _reclaim_all(step: Step, bench: Bench, leaving_swap: str = "") -> Iterator[Done]:
    for target in step.targets:
        yield from _reclaim_below(Path(target), bench, leaving_swap)


def _reclaim_below(target: Path, bench: Bench, leaving_swap: str) -> Iterator[Done]:
    """Again and again, as long as that frees any."""
    legacy = target / "memory.force_empty"
    amount = str(_RECLAIM_AT_A_TIME)
    job = (
        {"job": "reclaim", "file": os.fspath(legacy), "text": "0"}
        if legacy.exists()
        else {
            "job": "reclaim",
            "file": os.fspath(target / "memory.reclaim"),
            "text": amount + leaving_swap,
            "otherwise": amount,
        }
    )
    fruitless, before = 0, bench.count()
    while fruitless < _PASSES_WITHOUT_SUCCESS:
        done = bench.crew.run(job, BATCH_S)
        # v2 says so when less could be reclaimed than was asked for.
        yield done if done.error == errno.EAGAIN else _checked(done)
        after = bench.count()
        freed = before is not None and after is not None and after < before
        fruitless = 0 if freed else fruitless + 1
        before = after


def _checked(done: Done) -> Done:
    if done.error:
        raise JobFailed(done.words)
    return done
