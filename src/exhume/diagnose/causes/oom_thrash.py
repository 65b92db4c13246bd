"""The kernel kills for memory again and again: what it killed is started anew, and runs into the same limit."""

import re
from collections import Counter
from dataclasses import dataclass

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_load
from exhume.diagnose.facts.owners import fit_remedies, owner_of
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity
from exhume.model.window import Window
from exhume.model.words import count

CAUSE = catalogue()["oom-thrash"]
# The kernel's own summary of a kill; a limit of a cgroup is named before the victim's cgroup.
_SUMMARY = re.compile(
    r"oom-kill:constraint=(?P<constraint>\w+),.*?(?:oom_memcg=(?P<limit>[^,]+),)?task_memcg=(?P<cgroup>[^,]+),task=(?P<comm>.*),pid=(?P<pid>\d+)"
)
# Before 5.0 only a limit of a cgroup is told, in words.
_LIMIT = re.compile(r"Task in (?P<cgroup>/.*) killed as a result of limit of (?P<limit>/.*)")
_WHOLE_NODE, _ONE_CGROUP = "CONSTRAINT_NONE", "CONSTRAINT_MEMCG"


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill as the log told it. Times are wall nanoseconds."""

    at: int
    comm: str | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class Kills:
    """All kills of a stretch: those in the log, the cgroup whose limit was hit most, the node's own count, and the
    seconds in which that rose."""

    told: list[Kill]
    cgroup: str | None
    constraint: str | None
    counted: int
    seconds: int
    evidence: tuple[Evidence, ...]

    @property
    def number(self) -> int:
        # The log is limited in its rate, the count is not; without either source the other has to do.
        return max(len(self.told), self.counted)

    @property
    def bouts(self) -> int:
        """How often the kernel had to kill: one time may take all processes of a cgroup."""
        return max(len({kill.at // NANOS for kill in self.told}), self.seconds)

    @property
    def victim(self) -> str | None:
        """Who was killed most often."""
        names = Counter(kill.comm for kill in self.told if kill.comm)
        return names.most_common(1)[0][0] if names else None

    def times(self, comm: str | None) -> int:
        """How often one was killed: its processes that went together count once."""
        return len({kill.at // NANOS for kill in self.told if kill.comm is not None and kill.comm == comm})


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    # The log is written late by a node that is short of everything.
    now = find_kills(case, Window(case.focus.since - NANOS, case.focus.until + NANOS))
    lately = find_kills(
        case, Window(case.focus.until - round(CAUSE.limit("lately_s") * NANOS), case.focus.until + NANOS)
    )
    if not now.number:
        return builder.rule_out("nothing was killed for memory in this time")
    load = _load(case, now)
    # Whoever is killed now; others may have been killed more often before.
    comm = now.victim or lately.victim
    times = lately.times(comm)
    cgroup = now.cgroup or lately.cgroup
    _tell_kills(builder, case, now, lately)
    _tell_time(builder, case, load)
    whose = owner_of(case, cgroup)
    where = whose.words or (f"cgroup {cgroup}" if cgroup else "")
    victim = next((kill for kill in reversed(lately.told) if kill.comm == comm), None)
    if times >= CAUSE.limit("repeated"):
        short = "the node has" if (now.constraint or lately.constraint) == _WHOLE_NODE else "its limit is"
        text = f"{comm}{f' in {where}' if where else ''} was killed {times} times: {short} too little for what it does"
        builder.add(Role.ROOT_CAUSE, text, *lately.evidence[-1:], strength=CAUSE.limit("fair"))
    culprit = Culprit(
        cpu=load.cpu if load.samples else None,
        pid=victim.pid if victim else None,
        comm=comm,
        cgroup=cgroup,
        container=whose.container,
        pod=whose.pod,
    )
    summary = f"{count(lately.number, 'kill')} for memory in {_minutes(CAUSE.limit('lately_s'))}"
    summary += f": {comm}{f' in {where}' if where else ''} {count(times, 'time')}" if comm else ""
    remedies = fit_remedies(CAUSE.remedies, whose, whose.target or cgroup or comm or "it")
    weight = max(load.cores * case.focus.seconds, float(now.number))
    return builder.found(_severity(now, lately), summary, culprit=culprit, load=load, weight=weight, remedies=remedies)


def find_kills(case: Case, window: Window) -> Kills:
    """The kills of a window (it may reach back before the focus), from the log and from the node's count."""
    told: list[Kill] = []
    limits: Counter[str] = Counter()
    constraints: Counter[str] = Counter()
    evidence: list[Evidence] = []
    for event in case.recording.events(window):
        if event.kind == "oom-kill":
            told.append(Kill(event.wall, event.comm, event.pid))
            match = (("kind", "oom-kill"),)
            evidence = [Evidence("events", "text", "first", event.text, event.wall, event.wall + 1, match=match)]
        elif summary := _SUMMARY.search(event.text):
            constraints[summary["constraint"]] += 1
            limits[summary["limit"] or summary["cgroup"]] += 1
        elif told_of := _LIMIT.match(event.text):
            constraints[_ONE_CGROUP] += 1
            limits[told_of["limit"]] += 1
    rows = case.recorded("node", (case.focus.until - window.since) / NANOS).within(window)
    counted = quote_column(rows, "oom_kill", "sum") if len(rows) else None
    if counted is not None and counted.value:
        evidence.insert(0, counted)
    return Kills(
        told,
        limits.most_common(1)[0][0] if limits else None,
        constraints.most_common(1)[0][0] if constraints else None,
        int(counted.value) if counted is not None else 0,
        int((rows.numbers("oom_kill") > 0).sum()) if len(rows) else 0,
        tuple(evidence),
    )


def _load(case: Case, kills: Kills) -> Load:
    """The time of whoever is killed again and again: in the kernel it goes to faults, reclaim and its own end."""
    if not case.has_stacks:
        return case.load(CAUSE.names)
    victims = {kill.comm for kill in kills.told if kill.comm}
    sampled = case.samples
    return case.load_of((sampled.of_comms(victims) & sampled.in_kernel) | sampled.holding(CAUSE.names))


def _tell_time(builder: EvidenceBuilder, case: Case, load: Load) -> None:
    """What the kills cost, where that is worth telling."""
    names = (*CAUSE.functions, *(CAUSE.more_functions or {})["reclaim"])
    own = case.load(names)
    if load.together < CAUSE.limit("core_share") or not own.samples:
        return
    function = case.samples.nearest(load.mask, CAUSE.names)
    doing = f" (of that, killing: {function})" if function else ""
    text = f"{load.cores:.2f} cores went to what is killed and to killing it{doing}"
    builder.add(Role.MECHANISM, text, quote_load(case, own, names), strength=CAUSE.limit("weak"))


def _tell_kills(builder: EvidenceBuilder, case: Case, now: Kills, lately: Kills) -> None:
    often = lately.bouts >= CAUSE.limit("repeated")
    text = (
        f"{count(now.number, 'process', 'processes')} killed for memory in {case.focus.seconds:.0f} s, "
        f"{lately.number} in {_minutes(CAUSE.limit('lately_s'))}"
    )
    strength = CAUSE.limit("strong") if often else CAUSE.limit("fair")
    builder.add(Role.SYMPTOM, text, *(lately.evidence or now.evidence), strength=strength)
    if not lately.told:
        builder.doubt("the kernel log was not recorded: who was killed is not known", CAUSE.limit("untold"))


def _severity(now: Kills, lately: Kills) -> Severity:
    if now.bouts >= CAUSE.limit("repeated"):
        return Severity.CRITICAL
    return Severity.WARNING if lately.bouts >= CAUSE.limit("repeated") else Severity.INFO


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes"
