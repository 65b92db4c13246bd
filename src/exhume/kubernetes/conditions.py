"""The node's conditions: when each is set, how long it holds, and when it clears. Pure state, no requests.

A condition is set by an incident, holds while its symptom is visible in the rows of each tick, and clears by itself
after a quiet period. A condition set by an earlier recorder is adopted, and clears in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from exhume.model.clock import NANOS
from exhume.model.finding import Scope, Severity, Verdict
from exhume.model.tables import DYING_CGROUPS, KERNEL_STATES, Columns, is_held, queue_of, stood_still
from exhume.notify.report import UNEXPLAINED, Mark, Report

# The same threshold as for an incident's mark (exhume.collect.incidents): such a core still starves its tasks.
_WAITED_NS = NANOS // 2
# A leak holds while at least this share of the cgroups it was marked for is still dying.
_STILL_SHARE = 0.5
_LEAST_DYING = 200
# kubectl shows conditions in a table, so keep them short; the API accepts 32 KiB.
MAX_MESSAGE = 512
LEAK_CAUSES = frozenset({"zombie-memcgs", "cgroup-excess"})
NIC_TRIGGERS = "nic-"


class ConditionType(StrEnum):
    """The conditions of a node, in Kubernetes spelling."""

    CPU_STARVED = "CPUStarved"
    CGROUP_LEAK = "CgroupLeak"
    NIC_RESET = "NICReset"


# Reason and message of a condition that is not set.
QUIET = {
    ConditionType.CPU_STARVED: ("NoStarvation", "no core was starved lately"),
    ConditionType.CGROUP_LEAK: ("NoLeak", "dying cgroups did not pile up lately"),
    ConditionType.NIC_RESET: ("NoReset", "no network card timed out or was reset lately"),
}


@dataclass(slots=True)
class Condition:
    """The state of one condition. `since` is its last transition (wall nanoseconds), `seen` the last time its symptom
    was observed (monotonic nanoseconds)."""

    status: bool
    reason: str
    message: str
    since: int
    seen: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "reason": self.reason, "message": self.message, "since": self.since}


def reason_of(cause: str) -> str:
    """The id of a cause in the API's spelling of reasons: zombie-memcgs becomes ZombieMemcgs."""
    return "".join(part[:1].upper() + part[1:] for part in cause.split("-"))


@dataclass(slots=True)
class Conditions:
    """All conditions of this node. A condition that is unknown (None) is left as the API has it until it was read."""

    quiet_ns: int
    states: dict[ConditionType, Condition | None] = field(default_factory=lambda: dict.fromkeys(ConditionType))
    _dying: dict[str, int] = field(default_factory=dict)
    _leak_floor: int = _LEAST_DYING

    def adopt(self, found: Mapping[str, Any], now: int) -> None:
        """Adopt the API's state of conditions that are still unknown."""
        for type_, state in self.states.items():
            there = found.get(type_)
            if state is None and there is not None:
                self.states[type_] = Condition(
                    bool(there["status"]), str(there["reason"]), str(there["message"]), int(there["since"]), now
                )

    def mark(self, mark: Mark, now: int) -> bool:
        """Apply a mark before its diagnosis: what the kernel logged or counted needs none."""
        if mark.trigger.startswith(NIC_TRIGGERS):
            device = f" of {mark.device}" if mark.device else ""
            return self._raise(
                ConditionType.NIC_RESET, mark.trigger, f"transmit trouble{device}: {mark.text}", mark, now
            )
        if mark.trigger == DYING_CGROUPS:
            self._leak_floor = max(_LEAST_DYING, int(max(self._dying.values(), default=0) * _STILL_SHARE))
            return self._raise(ConditionType.CGROUP_LEAK, mark.trigger, mark.text, mark, now)
        return False

    def report(self, report: Report, now: int) -> bool:
        """Apply a diagnosis; returns whether a condition changed."""
        changed = False
        starved = [
            each
            for each in report.findings
            if each["severity"] == Severity.CRITICAL and each.get("scope", Scope.NODE) == Scope.NODE
        ]
        mark = report.marks[0]
        if report.verdict == Verdict.STARVED or starved:
            cause = str(starved[0]["cause"]) if starved else report.cause
            message = str(starved[0]["summary"]) if starved else report.summary
            changed |= self._raise(ConditionType.CPU_STARVED, cause, message, mark, now)
        for finding in report.findings:
            if finding["cause"] in LEAK_CAUSES:
                summary = str(finding["summary"])
                changed |= self._raise(ConditionType.CGROUP_LEAK, str(finding["cause"]), summary, mark, now)
        resets = [each for each in report.marks if each.trigger.startswith(NIC_TRIGGERS)]
        if resets and report.cause != UNEXPLAINED:
            message = f"{resets[0].text}; {report.summary}"
            changed |= self._raise(ConditionType.NIC_RESET, report.cause, message, resets[0], now)
        return changed

    def observe(self, rows: Mapping[str, Sequence[Columns]], now: int) -> None:
        """Refresh the conditions that still hold according to the rows of a tick."""
        for columns in rows.get("cgroups", ()):
            hierarchies = columns.get("hierarchy", ())
            for hierarchy, parent, dying in zip(hierarchies, columns["parent"], columns["dying"], strict=True):
                if not parent and dying is not None:
                    self._dying[str(hierarchy)] = int(dying)
        leak, starved = self.states[ConditionType.CGROUP_LEAK], self.states[ConditionType.CPU_STARVED]
        if leak is not None and leak.status and max(self._dying.values(), default=0) >= self._leak_floor:
            leak.seen = now
        if starved is not None and starved.status and (_hot_core(rows) or _waiting_ksoftirqd(rows)):
            starved.seen = now

    def expire(self, now: int, wall: int) -> bool:
        """Clear conditions that have been quiet for long enough; returns whether one changed."""
        changed = False
        for type_, state in self.states.items():
            if state is not None and state.status and now - state.seen >= self.quiet_ns:
                self.states[type_] = Condition(False, *QUIET[type_], wall, now)
                changed = True
        return changed

    def _raise(self, type_: ConditionType, cause: str, message: str, mark: Mark, now: int) -> bool:
        """Set a condition. While it holds, a different cause or message counts as a change too."""
        old, reason = self.states[type_], reason_of(cause)
        text = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}..."
        if old is not None and old.status:
            old.seen = now
            changed = (old.reason, old.message) != (reason, text)
            old.reason, old.message = reason, text
            return changed
        self.states[type_] = Condition(True, reason, text, mark.wall, now)
        return True


def _hot_core(rows: Mapping[str, Sequence[Columns]]) -> bool:
    # Imported late: the process that talks to the API needs only the names, and numpy costs it 0.1 s of CPU.
    import numpy as np

    def taken(columns: Columns, *states: str) -> Any:
        return np.sum([np.asarray(columns[state], np.int64) for state in states], axis=0)

    return any(is_held(taken(each, *KERNEL_STATES), taken(each, "steal")).any() for each in rows.get("cpu", ()))


def _waiting_ksoftirqd(rows: Mapping[str, Sequence[Columns]]) -> bool:
    names = ("comm", "cpu", "run_ns", "wait_ns", "slices")
    waits = (
        (core, ran, waited, slices)
        for columns in rows.get("threads", ())
        for comm, core, ran, waited, slices in zip(*(columns[name] for name in names), strict=True)
        if waited > _WAITED_NS and comm.startswith("ksoftirqd/")
    )
    cpu = rows.get("cpu", ())
    return any(
        stood_still(waited, ran, slices, NANOS, queue_of(cpu, core, NANOS)) for core, ran, waited, slices in waits
    )
