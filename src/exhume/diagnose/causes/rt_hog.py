"""A thread with a real-time policy keeps its core: nothing ordinary runs there, not even the core's ksoftirqd."""

from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.facts.co_runners import slowed_co_runner
from exhume.diagnose.facts.core_hogs import CoreHog, find_core_hogs
from exhume.diagnose.facts.waits import core_waits, softirq_wait
from exhume.diagnose.symptoms import LOG_SLACK_NS
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity
from exhume.model.window import Window

CAUSE = catalogue()["rt-hog"]
_NAMES = {1: "FIFO", 2: "RR", 6: "deadline"}


@dataclass(frozen=True, slots=True)
class Policy:
    """A real-time policy as the recorder told it."""

    number: int
    priority: int
    at: int

    @property
    def words(self) -> str:
        name = _NAMES[self.number]
        return f"SCHED_{name.upper()}" + (f", priority {self.priority}" if self.priority else "")


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    policies, recorded = _policies(case)
    urgent = find_core_hogs(case, seconds=CAUSE.limit("seconds"), pids=policies) if policies else []
    line = _log_line(case)
    if urgent:
        return _hog(builder, case, urgent[0], policies[urgent[0].pid], line)
    keepers = [] if recorded else find_core_hogs(case, seconds=CAUSE.limit("seconds"))
    suspect = next((each for each in keepers if _keeps_all_out(case, each, line)), None)
    if suspect is not None:
        return _hog(builder, case, suspect, None, line)
    if line is not None and not case.has_stacks:
        return _only_told(builder, case, line)
    if recorded:
        return builder.rule_out("no process with a real-time policy kept a core")
    return builder.rule_out("nobody kept a core in a way that only a real-time thread can")


def _hog(builder: EvidenceBuilder, case: Case, keeper: CoreHog, policy: Policy | None, line: Evidence | None) -> Found:
    load = keeper.load
    builder.add(
        Role.MECHANISM,
        f"{keeper.comm} had {load.peak:.0%} of core {keeper.cpu}, and kept it for {keeper.seconds:.0f} s",
        keeper.evidence,
        strength=CAUSE.limit("weak"),
        at=load.at,
    )
    if policy is not None:
        told = Evidence(
            "processes", "policy", "last", policy.number, policy.at, policy.at + 1, match=(("pid", str(keeper.pid)),)
        )
        text = f"it runs under {policy.words}: what is ordinary gets that core only when it sleeps"
        builder.add(Role.ROOT_CAUSE, text, told, strength=CAUSE.limit("strong"))
    else:
        builder.doubt("its scheduling policy was not recorded", CAUSE.limit("no_policy_factor"))
    felt = _tell_sufferers(builder, case, keeper, line)
    severity = _severity(case, keeper, felt=felt)
    summary = f"{keeper.comm}{f' ({policy.words})' if policy else ''} keeps core {keeper.cpu} for itself"
    culprit = case.culprit(load)
    return builder.found(
        severity,
        summary,
        culprit=replace(culprit, cpu=keeper.cpu, pid=keeper.pid, comm=keeper.comm),
        load=load,
        remedies=aim(CAUSE.remedies, str(keeper.pid)),
    )


def _tell_sufferers(builder: EvidenceBuilder, case: Case, keeper: CoreHog, line: Evidence | None) -> bool:
    """Who had to wait; whether anybody is known to."""
    felt = False
    if line is not None:
        felt = True
        builder.add(
            Role.SYMPTOM, "the kernel had to stop real-time threads for a moment", line, strength=CAUSE.limit("line")
        )
    waited = softirq_wait(case, keeper.cpu)
    if waited is not None and waited[0] >= CAUSE.limit("softirq_wait_s"):
        felt = True
        text = f"the ksoftirqd of core {keeper.cpu} waited {waited[0]:.1f} s, which no ordinary program can make it"
        builder.add(Role.SYMPTOM, text, waited[1], strength=CAUSE.limit("waited"))
    loser = slowed_co_runner(
        case, keeper.cpu, keeper.pid, least=CAUSE.limit("lost_cores"), part=CAUSE.limit("left_part")
    )
    if loser is not None:
        felt = True
        text = f"{loser.comm} (pid {loser.pid}) got {loser.cores:.2f} cores, {loser.before:.2f} before"
        builder.add(Role.SYMPTOM, text, *loser.evidence, strength=CAUSE.limit("weak"))
    waits = core_waits(case, keeper.cpu)
    if waits is not None and waits.now >= CAUSE.limit("waiting") and waits.now >= 3 * waits.before:
        felt = True
        text = f"threads waited {waits.now:.1f} s a second for core {keeper.cpu} ({waits.before:.1f} before)"
        builder.add(Role.SYMPTOM, text, waits.evidence, strength=CAUSE.limit("weak"))
    return felt


def _severity(case: Case, keeper: CoreHog, *, felt: bool) -> Severity:
    if felt:
        return Severity.CRITICAL
    whole = keeper.load.peak >= CAUSE.limit("whole")
    if case.baseline.empty:
        # Without a calm time, one that was there for a part of the time at least began in it.
        began = keeper.seconds < CAUSE.limit("throughout") * case.focus.seconds
        return Severity.CRITICAL if began and whole else Severity.WARNING
    # One that was always there, and nobody suffers, has a core that was set aside for it.
    return Severity.CRITICAL if keeper.load.is_new and whole else Severity.INFO


def _keeps_all_out(case: Case, keeper: CoreHog, line: Evidence | None) -> bool:
    """Whether only a real-time thread can be so: it computes, which anybody may interrupt, and nobody does."""
    if keeper.user < CAUSE.limit("user_part") or keeper.load.peak < CAUSE.limit("whole"):
        return False
    waited = softirq_wait(case, keeper.cpu)
    return line is not None or (waited is not None and waited[0] >= CAUSE.limit("softirq_wait_s"))


def _only_told(builder: EvidenceBuilder, case: Case, line: Evidence) -> Found:
    builder.add(
        Role.MECHANISM,
        "the kernel stopped real-time threads: on some core they had used up what they may have",
        line,
        strength=CAUSE.limit("line"),
    )
    share, cpu, at = case.core_share(("user", "nice", "system"))
    full = cpu if share >= CAUSE.limit("whole") else None
    if full is not None:
        rows = case.now("cpu").within(Window(at, at + 1))
        idle = rows.where(rows.cpu == full).lowest("idle") or 0
        told = Evidence("cpu", "idle", "min", idle, at, at + 1, full, unit="permille")
        builder.add(Role.CULPRIT, f"core {full} was full: it may be the one", told)
    builder.doubt("no stacks were sampled: the process is not known", CAUSE.limit("no_policy_factor"))
    summary = "a real-time thread used up what the kernel lets it have of a core"
    return builder.found(Severity.WARNING, summary, culprit=Culprit(cpu=full), weight=CAUSE.limit("seconds"))


def _policies(case: Case) -> tuple[dict[int, Policy], bool]:
    """The processes that were told to be real-time up to the end of the focus; whether policies were told at all."""
    rows = case.now("processes")
    if not len(rows) or np.isnan(rows.numbers("policy")).all():
        return {}, False
    found = {}
    for wall, pid, policy, priority in rows.listed("wall", "pid", "policy", "rt_priority"):
        if policy in _NAMES and wall < case.focus.until + NANOS:
            found[pid] = Policy(int(policy), int(priority or 0), wall)
    return found, True


def _log_line(case: Case) -> Evidence | None:
    near = Window(case.focus.since - 2 * NANOS, case.focus.until + LOG_SLACK_NS)
    for event in case.recording.events(near):
        if event.kind in CAUSE.log:
            return Evidence(
                "events", "text", "first", event.text, event.wall, event.wall + 1, match=(("kind", event.kind),)
            )
    return None
