"""Free zombies step by step, each step bounded in time and cost, with a count after every batch.

Temporary changes are journaled before they are made, and undone when the step ends, however it ends.
"""

import errno
import os
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exhume.collect.cgroup.census import KernelMemory, take_census
from exhume.collect.cgroup.pins import KnownPins
from exhume.control.changes import NodeJournal, NodeTools, Swapfile, SwapOff, keep_out_of_swap, undo
from exhume.control.managers import ActionFailed
from exhume.control.swap import is_on, swaps
from exhume.control.worker import SIGNALLED_S, JobFailed, JobResult, JobTimeout, Workers, idlest_core
from exhume.model.remedy import Effect, Measure, Outcome, Plan, Report, Risk, Status, Step, StepResult
from exhume.model.stop import Stop
from exhume.model.text import count, size
from exhume.model.zombies import PAGE, ParentResidual, PinKind
from exhume.procfs.host import Host, ProcFile
from exhume.remedy.services.actions import Before
from exhume.remedy.zombies.plan import CLEAN_UP, DROP_UNSEEN, SWAPFILE, make_plan
from exhume.remedy.zombies.situation import PIN_SECONDS, Scope, Situation, Watch, memory_root

# The longest time that a core is held at once.
BATCH_S = 1.0
_FILES_AT_A_TIME = 5_000
_RECLAIM_AT_A_TIME = 64 << 20
# Pages that were under writeback in one pass can be freed in the next; if two passes free nothing, more won't help.
_PASSES_WITHOUT_SUCCESS = 2
# Pages that are swapped out leave their cgroup when they are written, and the cgroup is freed when they are read back:
# until then only the charged memory falls. On a slow disk or core that takes several passes that are cut off.
_CUT_PASSES_TO_SWAP = 10


@dataclass(frozen=True, slots=True)
class Bench:
    """What an action needs. `count` returns the current number of zombies; `step_s` is the time limit of a step."""

    tools: NodeTools
    journal: NodeJournal
    count: Callable[[], int | None]
    step_s: float = 60.0


Batches = Generator[JobResult, None, None]


def fadvise(step: Step, bench: Bench) -> Batches:
    """Drop the cached pages of the named files."""
    yield from _in_batches("fadvise", step.targets, bench)


def _in_batches(job: str, paths: Sequence[str], bench: Bench) -> Iterator[JobResult]:
    at = 0
    while at < len(paths):
        files = paths[at : at + _FILES_AT_A_TIME]
        done = bench.tools.workers.run({"job": job, "files": files}, BATCH_S, leave_after=bench.step_s)
        if done.left:
            raise JobTimeout(f"a disk did not take what is dirty in {done.seconds:.0f} s{_left_there(done)}")
        # Advance by at least one file, so that a single slow one can't block the rest forever.
        at += len(files) if done.complete else max(1, done.reached)
        yield _checked(done)


def reclaim(step: Step, bench: Bench) -> Batches:
    """Reclaim below the parents, without swapping out live cgroups."""
    if not swaps(bench.tools.host):
        yield from _reclaim_all(step, bench)
        return
    with keep_out_of_swap(step.targets, bench.journal, bench.tools):
        yield from _reclaim_all(step, bench, " swappiness=0")


def drop_caches(step: Step, bench: Bench) -> Batches:
    """Drop the page cache after writing back dirty pages. A signal interrupts neither: fs/sync.c, ksys_sync, waits for
    every disk, and fs/drop_caches.c walks the whole cache."""
    job = {"job": "drop-caches", "file": step.targets[0]}
    done = bench.tools.workers.run(job, bench.step_s, leave_after=SIGNALLED_S)
    if done.left or (not done.complete and not bench.tools.workers.stop.is_set()):
        what = "dropping caches" if done.reached else "nothing was dropped: sync"
        raise JobTimeout(f"{what} did not end in {done.seconds:.0f} s{_left_there(done)}")
    yield _checked(done)


def _left_there(done: JobResult) -> str:
    return f"; its worker (pid {done.left}) still waits in the kernel, and does no more after that" if done.left else ""


def swap_through(step: Step, bench: Bench) -> Batches:
    """Swap shared memory out to a temporary swapfile and back in, charged to the live parent.

    Reclaim alone does not reach active pages of zombies that have few: it relies on counters that are off by up to 32
    pages per CPU on Linux before 5.13 (mm/vmscan.c of 5.10, shrink_lruvec and inactive_is_low). The files that were
    found are paged out first.
    """
    path = os.fspath(bench.tools.directory / SWAPFILE)
    change = Swapfile(path)
    bench.journal.add(change)
    try:
        yield _checked(bench.tools.workers.run({"job": "swapfile", "path": path, "size": step.bytes}, None))
        with keep_out_of_swap(step.targets, bench.journal, bench.tools):
            yield from _in_batches("page-out", [value for name, value in step.params if name == "file"], bench)
            yield from _reclaim_all(step, bench, cut_passes=_CUT_PASSES_TO_SWAP)
    finally:
        undo(bench.journal, bench.tools, change)


def swap_off(step: Step, bench: Bench) -> Batches:
    """Turn each swap area off and on again."""
    priorities = {swap.path: swap.priority for swap in swaps(bench.tools.host)}
    for path in step.targets:
        if path not in priorities:
            continue
        change = SwapOff(path, priorities[path])
        bench.journal.add(change)
        try:
            while is_on(bench.tools.host, path):
                # Pages read back into memory by the end of a batch stay there.
                yield _checked(bench.tools.workers.run({"job": "swapoff", "path": path}, 10 * BATCH_S))
        finally:
            undo(bench.journal, bench.tools, change)


def clean_up(step: Step, bench: Bench) -> Batches:
    """Undo what an earlier run left behind."""
    undo(bench.journal, bench.tools)
    yield JobResult(True, 0, 0.0, 0.0)


ACTIONS: dict[str, Callable[[Step, Bench], Batches]] = {
    "fadvise": fadvise,
    "reclaim": reclaim,
    "drop-caches": drop_caches,
    DROP_UNSEEN: drop_caches,
    "swap-through": swap_through,
    "swapoff": swap_off,
    "clean-up": clean_up,
}


def _reclaim_all(
    step: Step, bench: Bench, leaving_swap: str = "", cut_passes: int = _PASSES_WITHOUT_SUCCESS
) -> Iterator[JobResult]:
    for target in step.targets:
        yield from _reclaim_below(Path(target), bench, leaving_swap, cut_passes)


def _reclaim_below(target: Path, bench: Bench, leaving_swap: str, cut_passes: int) -> Iterator[JobResult]:
    """Reclaim repeatedly, as long as there are zombies and passes free any. Ends after two passes without success, or
    after `cut_passes` that were cut off."""
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
    fruitless = cut = 0
    zombies, charged = bench.count(), _charged_bytes(target)
    while zombies != 0 and fruitless < _PASSES_WITHOUT_SUCCESS and cut < cut_passes:
        done = bench.tools.workers.run(job, BATCH_S)
        # memory.reclaim returns EAGAIN if less could be reclaimed than requested.
        yield done if done.error == errno.EAGAIN else _checked(done)
        before, zombies = zombies, bench.count()
        # Only a new minimum counts: live cgroups read their pages back in.
        least, charged = charged, min(charged, _charged_bytes(target))
        freed = before is not None and zombies is not None and zombies < before
        if freed or (cut_passes > _PASSES_WITHOUT_SUCCESS and charged < least):
            fruitless = cut = 0
        elif done.complete:
            fruitless += 1
        else:
            cut += 1


def _charged_bytes(target: Path) -> int:
    """The bytes charged to a cgroup and everything below it, including removed cgroups; 0 if that can't be read."""
    for name in ("memory.usage_in_bytes", "memory.current"):
        text = ProcFile(target / name).read_or_none()
        if text is not None and text.strip().isdigit():
            return int(text)
    return 0


def _checked(done: JobResult) -> JobResult:
    if done.error:
        raise JobFailed(done.message)
    return done


def _files_or_inodes(parent: ParentResidual) -> int:
    """What reclaim can free. On v2 an inode keeps a reference to the cgroup that last wrote it, even after its pages
    are gone. Reclaim evicts such inodes as well; if no pages are left, they are what holds the dying cgroups."""
    return parent.file_bytes + parent.unclassified_bytes if parent.bytes else (parent.dying or 0) * PAGE


# What a step frees, by action.
_FREES: dict[str, Callable[[ParentResidual], int]] = {
    "fadvise": lambda parent: parent.file_bytes + parent.unclassified_bytes,
    "reclaim": _files_or_inodes,
    "drop-caches": lambda parent: parent.file_bytes + parent.unclassified_bytes,
    "swap-through": lambda parent: parent.shmem_bytes + parent.anon_bytes + parent.unclassified_bytes,
    "swapoff": lambda parent: parent.swap_bytes,
}
_LEFT_UNDONE = {Status.REFUSED, Status.TIMED_OUT, Status.INTERRUPTED, Status.FAILED, Status.MANUAL}


def still_held(parents: Sequence[ParentResidual], step: Step) -> bool:
    """Whether any page that the step could free is still charged to a removed cgroup."""
    frees = _FREES.get(step.action)
    return frees is None or sum(frees(parent) for parent in parents) >= PAGE


def why_left(situation: Situation, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The reasons why zombies are left, from what is still charged and what was not done."""
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


# The pause between batches, in which the core is available to others.
REST_S = 0.2
# Released cgroups take a moment to disappear, thousands of them some seconds. A final count waits for the last one,
# whose release may pause for half a second.
_SETTLE_LOOK_S = 0.15
_FOR_GOOD_S = 0.9
_SETTLE_AT_MOST_S = 10.0
# A busy node may take seconds before it begins to free cgroups that nothing holds any more: until this share of them is
# gone, it has not begun.
_MOST = 0.9
_BEGIN_AT_MOST_S = 15.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run. `accept` decides whether a step may cause the predicted spike; `only` are the ids of the
    steps that may be taken (empty: all); `step_s` is the time limit of each step."""

    accept: Callable[[Step], bool]
    only: Collection[str] = ()
    step_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Observer:
    """Progress callbacks: a step begins (on a core), zombies were counted, a step ended; the share of a search for the
    files that pin them, 1 at its end."""

    began: Callable[[Step, int | None], None] = lambda step, core: None
    counted: Callable[[Step, int | None], None] = lambda step, dying: None
    ended: Callable[[Outcome], None] = lambda outcome: None
    searched: Callable[[float], None] = lambda share: None


@dataclass(frozen=True, slots=True)
class Applier:
    """Carries out plans on a node. Workers run in `cgroup`."""

    host: Host
    stop: Stop
    journal: NodeJournal
    cgroup: Path | None
    watch: Watch
    observer: Observer

    def apply(self, plan: Plan, limits: Limits) -> Report:
        """Take the steps in order. A stop request takes effect between two batches; nothing is lost."""
        before = after = self.count(_FOR_GOOD_S)
        memory = KernelMemory.read(self.host)
        outcomes: list[Outcome] = []
        for step in plan.steps:
            outcome = self._take(step, limits, after)
            after = outcome.after
            outcomes.append(outcome)
            self.observer.ended(outcome)
        left: tuple[str, ...] = ()
        if after is None or after > 0:
            left = why_left(self.watch.situation(self.observer.searched), outcomes)
        freed = memory.fell_to(KernelMemory.read(self.host))
        return Report(plan, before, after, tuple(outcomes), left, self.stop.is_set(), freed)

    def count(self, still_s: float = _SETTLE_LOOK_S) -> int | None:
        """The number of zombies, once it has stopped falling for the given time."""
        least = now = take_census(self.host).dying
        fell = began = time.monotonic()
        while now is not None and least is not None and time.monotonic() - began < _SETTLE_AT_MOST_S:
            time.sleep(_SETTLE_LOOK_S)
            now = take_census(self.host).dying
            if now is not None and now < least:
                least, fell = now, time.monotonic()
            elif time.monotonic() - fell >= still_s:
                break
        return now

    def _take(self, step: Step, limits: Limits, count: int | None) -> Outcome:
        if (refusal := self._refusal(step, limits)) is not None:
            status, why = refusal
            return Outcome(step, status, count, count, why=why)
        held = self._pages()
        core = idlest_core(self.host)
        self.observer.began(step, core)
        tools = NodeTools(Workers(self.stop, core, self.cgroup), self.host, self.journal.directory)
        bench = Bench(tools, self.journal, lambda: self._counted(step), limits.step_s)
        began = time.monotonic()
        status, why, cpu = Status.DONE, "", 0.0
        batches = ACTIONS[step.action](step, bench)
        try:
            # Even if the loop ends early, closing undoes the temporary changes.
            with closing(batches):
                for done in batches:
                    cpu += done.cpu_seconds
                    self._counted(step)
                    if self.stop.wait(0.0 if done.complete else REST_S):
                        status, why = Status.INTERRUPTED, "a stop was requested"
                        break
                    if time.monotonic() - began >= limits.step_s:
                        status, why = Status.TIMED_OUT, f"its {limits.step_s:.0f} s are over; --max-time gives it more"
                        break
        except JobTimeout as error:
            status, why = (Status.INTERRUPTED if self.stop.is_set() else Status.TIMED_OUT), str(error)
        except JobFailed as error:
            status, why = Status.FAILED, str(error)
        seconds = time.monotonic() - began
        return Outcome(step, status, count, self._left(count, held), seconds, cpu, core, why)

    def _left(self, before: int | None, held: int | None) -> int | None:
        """The number of zombies that remain after a step, given their number and the number of held pages before it. On
        v1 each one is held by at least one page, so any zombies in excess of the pages that were not in excess before
        will be freed as soon as the kernel gets to them."""
        began = time.monotonic()
        while True:
            now = self.count(_FOR_GOOD_S)
            late = time.monotonic() - began > _BEGIN_AT_MOST_S or self.stop.is_set()
            if before is None or now is None or held is None or late:
                return now
            to_go = before - (self._pages() or 0) - max(0, before - held)
            if before - now >= _MOST * to_go:
                return now

    def _pages(self) -> int | None:
        """Pages charged to removed cgroups; None on v2, where files hold them even without pages."""
        parents = self.watch.residuals()
        if any(parent.version == 2 for parent in parents):
            return None
        return sum(parent.bytes for parent in parents) // PAGE

    def _refusal(self, step: Step, limits: Limits) -> tuple[Status, str] | None:
        """Why a step is not taken; None if it is."""
        if self.stop.is_set():
            return Status.INTERRUPTED, "a stop was requested before it began"
        if limits.only and step.id not in limits.only and step.id != CLEAN_UP:
            return Status.NOT_REQUESTED, "--only names other steps"
        if not step.automatic:
            return Status.MANUAL, "this is for a person to do"
        if not still_held(self.watch.residuals(), step):
            return Status.NOT_NEEDED, "nothing that it could free is left"
        if step.spike and not limits.accept(step):
            return (
                Status.REFUSED,
                f"it may keep one core busy in the kernel for {step.cpu_seconds:.1f} s; --accept-cost allows that",
            )
        return None

    def _counted(self, step: Step) -> int | None:
        count = self.count()
        self.observer.counted(step, count)
        return count


FREE_ZOMBIES = "free-zombies"


def free_zombies_step(plan: Plan, scope: Scope) -> Step | None:
    """Combine the automatic steps of a plan against zombies into one step; None if there are none."""
    parts = tuple(step for step in plan.steps if step.automatic)
    if not parts:
        return None
    return Step(
        id=FREE_ZOMBIES,
        title=f"free the zombies: {', '.join(step.id for step in parts)}",
        why=plan.summary,
        action=FREE_ZOMBIES,
        targets=tuple(dict.fromkeys(target for step in parts for target in step.targets)),
        commands=tuple(command for step in parts for command in step.commands),
        frees_at_most=plan.count,
        cpu_seconds=max(step.cpu_seconds for step in parts),
        spike=any(step.spike for step in parts),
        risk=max((step.risk for step in parts), key=list(Risk).index),
        harm="; ".join(dict.fromkeys(step.harm for step in parts if step.harm)),
        reversible=all(step.reversible for step in parts),
        undo="not needed: what is changed for a while is restored at the end, and nothing is lost",
        effects=(Effect(Measure.ZOMBIES, "fall"),),
        params=scope.params,
        parts=parts,
    )


@dataclass(frozen=True, slots=True)
class FreeZombies:
    """The action of the combined step. It plans again when its turn comes: leaking services have been stopped
    meanwhile, and what memory and disks can spare has changed. `known` are the files that the plan found."""

    host: Host
    stop: Stop
    journal: NodeJournal
    limits: Limits
    observer: Observer = Observer()
    pin_seconds: float = PIN_SECONDS
    known: KnownPins = field(default_factory=KnownPins)

    def look(self, step: Step) -> dict[str, Any]:
        return {"zombies": self._applier(Scope.from_params(step.params)).count()}

    def do(self, step: Step, before: Before) -> StepResult:
        scope = Scope.from_params(step.params)
        applier = self._applier(scope)
        plan = make_plan(applier.watch.situation(self.observer.searched))
        automatic = tuple(each for each in plan.steps if each.automatic)
        report = applier.apply(replace(plan, steps=automatic), replace(self.limits, only=scope.only))
        if report.interrupted:
            raise ActionFailed("interrupted; what was changed for a while is undone")
        return StepResult(_summary_of(report), details_of(report))

    def undo(self, step: Step, before: Before) -> str:
        undo(self.journal, NodeTools(Workers(self.stop), self.host, self.journal.directory))
        return "freed memory needs no undoing"

    def _applier(self, scope: Scope) -> Applier:
        place = self.journal.directory
        watch = Watch(self.host, place, scope.below, scope.search, self.pin_seconds, self.known, self.stop)
        return Applier(self.host, self.stop, self.journal, memory_root(self.host), watch, self.observer)


def _summary_of(report: Report) -> str:
    if report.before is None or report.after is None:
        return "zombies can't be counted here"
    failed = "".join(f"; {each.step.id} failed: {each.why}" for each in report.outcomes if each.status is Status.FAILED)
    memory = f" with {size(report.memory_freed)} of kernel memory" if report.memory_freed else ""
    return f"{count(max(0, report.before - report.after), 'zombie')} freed{memory}, {report.after:,} left{failed}"


def details_of(report: Report) -> dict[str, Any]:
    """The figures of a report, in the form that a fix stores."""
    return {
        "before": report.before,
        "after": report.after,
        "memory_freed": report.memory_freed,
        "outcomes": [
            {
                "id": outcome.step.id,
                "status": outcome.status.value,
                "before": outcome.before,
                "after": outcome.after,
                "freed": outcome.freed,
                "seconds": round(outcome.seconds, 3),
                "cpu_seconds": round(outcome.cpu_seconds, 3),
                "core": outcome.core,
                "why": outcome.why,
            }
            for outcome in report.outcomes
        ],
        "left_because": list(report.left_because),
    }
