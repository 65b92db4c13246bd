"""Turn marks into reports: an observer of the recorder's ticks, and a thread that has incidents diagnosed.

The observer only copies the marks of a tick, which are rare. Everything else happens in the thread and in its children,
so a slow disk, a starved node or an unreachable receiver never blocks the recorder.
"""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exhume.model.clock import Tick
from exhume.model.isolation import isolated_python
from exhume.model.process import usual_priority
from exhume.model.tables import DYING_CGROUPS, HOT_CORE, INCIDENT, Columns, Losses
from exhume.notify.child import Cancel, child_environment, run_child
from exhume.notify.limits import DIAGNOSES, DIAGNOSIS_EVERY_S, DiagnosisPace, ReportLimits, TokenBucket
from exhume.notify.report import Mark, Report, Sink

_log = logging.getLogger(__name__)

# An incident is judged once the rows after its mark have arrived: a driver's log lines, and the core's next seconds. A
# core was held for two seconds by the time it is marked: the next tick suffices. In the lab's kept recordings causes
# and severities are then those of a second more, while without that tick severities are lower.
SETTLE_S = 2.0
# An incident that the next seconds may explain is diagnosed a second time, unless the node is so busy that the first
# diagnosis took long: it has then already covered more seconds, and the report is due.
SECOND_LOOK_S = 4.0
SLOW_DIAGNOSIS_S = 2.0
MAX_MARKS = 64
# On a starved node the diagnosis has to wait for a core as well.
DIAGNOSIS_TIMEOUT_S = 60.0
_COLUMNS = ("time", "kind", "trigger", "text", "cpu", "device", "value")

Diagnose = Callable[[Mark, Cancel], tuple[Mapping[str, Any], str]]


class ChildDiagnosis:
    """Runs `exhume diagnose --json --at` in a child process; returns its JSON, or the reason why there is none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, mark: Mark, cancel: Cancel) -> tuple[Mapping[str, Any], str]:
        moment = f"@{mark.wall // 10**9}.{mark.wall % 10**9:09d}"
        command = isolated_python(
            "exhume.cli.main", "diagnose", "--json", "--utc", "--dir", self._directory.absolute(), "--at", moment
        )
        try:
            done = run_child(
                command, b"", timeout_s=DIAGNOSIS_TIMEOUT_S, cancel=cancel, environment=child_environment()
            )
            found = json.loads(done.output) if done.output and not done.truncated else None
        except OSError as error:
            return {}, f"the diagnosis can't be started: {error.strerror or error}"
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found, ""
        if done.code is None:
            return {}, f"the diagnosis took longer than {DIAGNOSIS_TIMEOUT_S:.0f} s"
        return {}, f"the diagnosis ended with code {done.code}: {done.last_error[:200]}"


class Notifier:
    """Collects marks, has them diagnosed, and hands reports to the sinks. An observer of the recorder's ticks."""

    name = "notifications"

    def __init__(
        self,
        node: str,
        sinks: Sequence[Sink],
        diagnose: Diagnose,
        *,
        settle_s: float = SETTLE_S,
        second_look_s: float = SECOND_LOOK_S,
        pace: DiagnosisPace | None = None,
    ) -> None:
        self._node, self._sinks, self._diagnose = node, sinks, diagnose
        self._settle_s, self._second_look_s = settle_s, second_look_s
        self._marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self._arrived = threading.Event()
        self._ticked = threading.Event()
        self._stop = threading.Event()
        # Called in the notifier's thread with the cause of each diagnosed incident.
        self.on_cause: Callable[[str], None] = lambda cause: None
        self._limits, self._pace = ReportLimits(), pace or DiagnosisPace()
        self._diagnoses = TokenBucket(DIAGNOSES, DIAGNOSIS_EVERY_S)
        self._thread = threading.Thread(target=self._run, name="notify-incidents", daemon=True)

    def start(self) -> None:
        for sink in self._sinks:
            sink.start()
        self._thread.start()

    def observe(self, tick: Tick, rows: Mapping[str, Sequence[Columns]], losses: Sequence[Losses]) -> None:
        """Collect the marks of a tick, whose rows can be read by now."""
        events = rows.get("events", ())
        marks = [mark for columns in events if INCIDENT in columns["kind"] for mark in marks_of(columns, tick)]
        # The marks first: who waits for the tick has to see them.
        self._marks += marks
        self._ticked.set()
        if marks:
            self._arrived.set()

    def close(self, grace_s: float = 2.0) -> None:
        """Stop; deliveries in progress have `grace_s` seconds."""
        until = time.monotonic() + grace_s
        self._stop.set()
        self._arrived.set()
        self._ticked.set()
        self._thread.join(grace_s)
        for sink in self._sinks:
            sink.close(max(0.1, until - time.monotonic()))

    def _run(self) -> None:
        usual_priority(threading.get_native_id())
        while not self._stop.is_set():
            self._arrived.wait()
            self._settle(time.monotonic())
            if self._stop.wait(self._diagnoses.wait_s(time.monotonic())):
                return
            self._arrived.clear()
            for marks in apart(self._taken()):
                if not self._pace.due(_places(marks), time.monotonic()):
                    self._count(marks)
                    continue
                if self._stop.wait(self._diagnoses.wait_s(time.monotonic())):
                    return
                self._diagnoses.take(time.monotonic())
                self._report(marks)

    def _settle(self, began: float) -> None:
        """Wait for the rows after the marks. Marks that follow shortly belong to the same incident, and are judged with
        it."""
        self._ticked.clear()
        # close() sets _stop before _ticked: either this sees it, or the event is set again.
        if self._stop.is_set():
            return
        if self._only_held_cores():
            self._ticked.wait(self._settle_s)
        if not self._only_held_cores():
            self._stop.wait(max(0.0, began + self._settle_s - time.monotonic()))

    def _only_held_cores(self) -> bool:
        return all(mark.trigger == HOT_CORE for mark in tuple(self._marks))

    def _taken(self) -> tuple[Mark, ...]:
        """Take the marks that have arrived, in time order. The observer may append concurrently."""
        taken = []
        while self._marks:
            taken.append(self._marks.popleft())
        return tuple(sorted(taken, key=lambda mark: mark.time))

    def _report(self, marks: tuple[Mark, ...]) -> None:
        began = time.monotonic()
        report = self._judged(marks)
        quick = time.monotonic() - began < SLOW_DIAGNOSIS_S
        if not report.is_final and quick and not self._stop.wait(self._second_look_s):
            report = self._judged(marks)
        if self._stop.is_set() and not report.diagnosis:
            return
        if report.diagnosis:
            self.on_cause(report.cause)
            self._pace.diagnosed(_places(marks), report.cause, time.monotonic())
        repeats = self._limits.admit(report.cause, time.monotonic())
        for sink in self._sinks:
            if repeats is not None or not sink.limited:
                sink.deliver(replace(report, repeats=repeats or 0))

    def _count(self, marks: tuple[Mark, ...]) -> None:
        """Count marks of trouble that was diagnosed before and goes on."""
        for cause in {self._pace.cause_of(mark.trigger) for mark in marks}:
            if cause is not None:
                self._limits.repeat(cause, time.monotonic())

    def _judged(self, marks: tuple[Mark, ...]) -> Report:
        diagnosis, problem = self._diagnose(marks[0], self._stop)
        if problem and not self._stop.is_set():
            _log.warning("an incident was not diagnosed: %s", problem)
        return Report(self._node, marks, diagnosis, problem)


def _places(marks: Sequence[Mark]) -> list[tuple[str, object]]:
    """The trigger of each mark, with its core or device."""
    return [(mark.trigger, mark.device if mark.cpu is None else mark.cpu) for mark in marks]


def apart(marks: Sequence[Mark]) -> list[tuple[Mark, ...]]:
    """Group marks in time order. Marks of cgroup growth are separate: it began earlier and has another explanation."""
    grown = tuple(mark for mark in marks if mark.trigger == DYING_CGROUPS)
    others = tuple(mark for mark in marks if mark.trigger != DYING_CGROUPS)
    return sorted((each for each in (grown, others) if each), key=lambda each: each[0].time)


def marks_of(columns: Columns, tick: Tick) -> list[Mark]:
    """The marks among the events of a tick; a column that is left out is null throughout."""
    lists = [columns.get(name, [None] * len(columns["time"])) for name in _COLUMNS]
    found = []
    for moment, kind, trigger, text, cpu, device, value in zip(*lists, strict=True):
        if kind == INCIDENT:
            wall = tick.wall - (tick.end - int(moment))
            core = None if cpu is None else int(cpu)
            found.append(Mark(int(moment), wall, str(trigger), str(text), core, device, value))
    return found
