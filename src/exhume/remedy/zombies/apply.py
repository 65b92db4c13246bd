"""Applying a plan against zombies: step by step, each bounded in time and cost, with the count after every batch."""

import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from exhume.collect.cgroup.census import take_census
from exhume.model.remedy import Outcome, Plan, Report, Status, Step
from exhume.model.stop import Stop
from exhume.model.zombies import PAGE
from exhume.procfs.host import Host
from exhume.remedy.journal import Journal
from exhume.remedy.spare_core import spare_core
from exhume.remedy.worker import Crew, JobFailed
from exhume.remedy.zombies.actions import ACTIONS, Bench
from exhume.remedy.zombies.look import Watch
from exhume.remedy.zombies.still_held import still_held, why_left

# Between batches the core is left to others.
REST_S = 0.2
# Released cgroups take a moment to go, thousands of them some seconds. What is told for good waits for the last one,
# which may rest for half a second before it goes.
_SETTLE_LOOK_S = 0.15
_FOR_GOOD_S = 0.9
_SETTLE_AT_MOST_S = 10.0
# A busy node may take seconds before it begins to let go of those that nothing holds any more: until so many of them
# are gone, it has not.
_MOST = 0.9
_BEGIN_AT_MOST_S = 15.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What whoever asked for it wants. `accept` says whether a step may cost the spike that is predicted; `only` are
    the ids of the steps that may be taken (empty: all)."""

    accept: Callable[[Step], bool]
    only: Collection[str] = ()
    step_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Tell:
    """Who hears of it while it happens: a step begins, zombies are fewer now, a step ended."""

    began: Callable[[Step, int | None], None] = lambda step, core: None
    count: Callable[[Step, int | None], None] = lambda step, dying: None
    ended: Callable[[Outcome], None] = lambda outcome: None


@dataclass(frozen=True, slots=True)
class Applier:
    """Carries out plans on a node. `home` is the cgroup that workers go to."""

    host: Host
    stop: Stop
    journal: Journal
    home: Path | None
    watch: Watch
    tell: Tell

    def apply(self, plan: Plan, wishes: Wishes) -> Report:
        """Take the steps in their order. A stop that is asked for ends it between two batches, with nothing lost."""
        before = after = self.count(_FOR_GOOD_S)
        outcomes: list[Outcome] = []
        for step in plan.steps:
            outcome = self._take(step, wishes, after)
            after = outcome.after
            outcomes.append(outcome)
            self.tell.ended(outcome)
        left = why_left(self.watch.situation(), outcomes) if after is None or after > 0 else ()
        return Report(plan, before, after, tuple(outcomes), left, self.stop.is_set())

    def count(self, still_s: float = _SETTLE_LOOK_S) -> int | None:
        """Zombies now, once they have not become fewer for so long."""
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

    def _take(self, step: Step, wishes: Wishes, count: int | None) -> Outcome:
        if (refusal := self._refusal(step, wishes)) is not None:
            status, why = refusal
            return Outcome(step, status, count, count, why=why)
        held = self._pages()
        core = spare_core(self.host)
        self.tell.began(step, core)
        crew = Crew(self.stop, core, self.home)
        bench = Bench(crew, self.host, self.journal, lambda: self._counted(step))
        began = time.monotonic()
        status, why, cpu = Status.DONE, "", 0.0
        batches = ACTIONS[step.action](step, bench)
        try:
            # Left early or not, what it changed for a while is undone at the end.
            with closing(batches):
                for done in batches:
                    cpu += done.cpu_seconds
                    self._counted(step)
                    if self.stop.wait(0.0 if done.complete else REST_S):
                        status, why = Status.INTERRUPTED, "a stop was asked for"
                        break
                    if time.monotonic() - began >= wishes.step_s:
                        status, why = Status.TIMED_OUT, f"its {wishes.step_s:.0f} s are over; --max-time gives it more"
                        break
        except JobFailed as error:
            status, why = Status.FAILED, str(error)
        seconds = time.monotonic() - began
        return Outcome(step, status, count, self._left(count, held), seconds, cpu, core, why)

    def _left(self, before: int | None, held: int | None) -> int | None:
        """Zombies for good after a step, when there were so many before it and they were held by so many pages. On v1
        each is held by a page at least, so what is there beyond the pages, and was not before, goes as soon as the
        kernel gets to it."""
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
        """Pages that are charged to removed cgroups; None on v2, where files keep them without any."""
        parents = self.watch.residuals()
        if any(parent.version == 2 for parent in parents):
            return None
        return sum(parent.bytes for parent in parents) // PAGE

    def _refusal(self, step: Step, wishes: Wishes) -> tuple[Status, str] | None:
        """Why a step is not taken; None when it is."""
        if self.stop.is_set():
            return Status.INTERRUPTED, "a stop was asked for before it began"
        if wishes.only and step.id not in wishes.only:
            return Status.NOT_ASKED, "--only names other steps"
        if not step.automatic:
            return Status.MANUAL, "this is for a person to do"
        if not still_held(self.watch.residuals(), step):
            return Status.NOT_NEEDED, "nothing that it could free is left"
        if step.spike and not wishes.accept(step):
            return (
                Status.REFUSED,
                f"it may keep one core busy in the kernel for {step.cpu_seconds:.1f} s; --accept-cost allows that",
            )
        return None

    def _counted(self, step: Step) -> int | None:
        count = self.count()
        self.tell.count(step, count)
        return count
