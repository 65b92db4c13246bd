"""The recorder's side of the Kubernetes API: keeps the newest state, and starts a child process when the state has
changed or pods with unknown owners appear."""

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exhume.collect.sources.pod_owners import PodOwner, PodOwners
from exhume.kubernetes.conditions import Conditions, ConditionType
from exhume.kubernetes.events import EventSpec, events_of
from exhume.kubernetes.taint import TaintPolicy, TaintState
from exhume.model.clock import NANOS, Tick
from exhume.model.isolation import isolated_python
from exhume.model.tables import INCIDENT, Columns, Losses
from exhume.notify.child import child_environment, run_child
from exhume.notify.incidents import marks_of
from exhume.notify.outbox import Backoff, Delivery, Outbox
from exhume.notify.report import Report

_log = logging.getLogger(__name__)

CHILD_TIMEOUT_S = 30.0
LONGEST_WAIT_S = 120.0
# Shows that the recorder is alive, and restores the conditions of a node that was registered again.
HEARTBEAT_NS = 1800 * NANOS
MAX_EVENTS = 32
# A child costs a third of a second of CPU. Pods that appear together are requested together, and after NAMES_BURST
# children only one in ten minutes is started for names alone.
NAMES_WAIT_NS, NAMES_EVERY_NS, NAMES_BURST = 10 * NANOS, 600 * NANOS, 3
# Pods that the API did not list: already gone, or in another cluster.
MAX_UNLISTED = 1024


class NamesPace:
    """Token bucket for requesting names soon after a new pod appears. Times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self._tokens = float(NAMES_BURST)
        self._filled = 0
        self._since: int | None = None

    def due(self, wanted: bool, now: int) -> bool:
        """Whether to send a request now, after names have been wanted for a while."""
        self._tokens = min(float(NAMES_BURST), self._tokens + (now - self._filled) / NAMES_EVERY_NS)
        self._filled = now
        if not wanted:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < NAMES_WAIT_NS or self._tokens < 1.0:
            return False
        self._tokens, self._since = self._tokens - 1.0, None
        return True


class KubernetesReporter:
    """An observer of ticks and a sink of reports. Only the newest state of the conditions is sent. While the API is
    unreachable events are queued, and the oldest are dropped first."""

    name = "kubernetes"
    limited = False

    def __init__(
        self, node: str, quiet_ns: int, policy: TaintPolicy | None = None, *, backoff: Backoff | None = None
    ) -> None:
        self._node, self._policy = node, policy
        self.conditions = Conditions(quiet_ns)
        self._taint = TaintState(policy) if policy else None
        # The taint of an earlier recorder is unknown until the node was read.
        self._taint_known = False
        self._events: deque[EventSpec] = deque(maxlen=MAX_EVENTS)
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._beat: int | None = None
        self._now = 0
        self._noted: set[str] = set()
        # Filled in the outbox thread, recorded in the recorder's thread.
        self.pod_owners = PodOwners()
        self.on_labels: Callable[[Mapping[str, str]], None] = lambda labels: None
        self._labels: dict[str, str] | None = None
        self._names_pace = NamesPace()
        self._names_wanted = self._names_done = False
        self._new_pods: set[str] = set()
        self._pods_left = 0
        self._unlisted: dict[str, None] = {}
        self.outbox: Outbox[None] = Outbox(
            "--kubernetes",
            self._send,
            most=1,
            max_age_s=float("inf"),
            backoff=backoff or Backoff(longest_s=LONGEST_WAIT_S),
        )

    def start(self) -> None:
        self.outbox.start()

    def close(self, grace_s: float) -> None:
        self.outbox.close(grace_s)
        self._cancel.set()

    def observe(self, tick: Tick, rows: Mapping[str, Sequence[Columns]], losses: Sequence[Losses]) -> None:
        """Update the conditions from the rows of a tick."""
        with self._lock:
            changed = self._beat is None or tick.end - self._beat >= HEARTBEAT_NS
            if changed:
                self._beat, self._names_wanted = tick.end, True
            self._now = tick.end
            self.conditions.observe(rows, tick.end)
            for columns in rows.get("events", ()):
                if INCIDENT in columns["kind"]:
                    for mark in marks_of(columns, tick):
                        changed |= self.conditions.mark(mark, tick.end)
            changed |= self.conditions.expire(tick.end, tick.wall)
            if self._taint is not None:
                starved = self.conditions.states[ConditionType.CPU_STARVED]
                changed |= self._taint.observe(starved is not None and starved.status, tick.end)
            self._take_pods(rows)
            if self._names_pace.due(bool(self._new_pods or self._pods_left), tick.end):
                self._names_wanted = changed = True
            labels, self._labels = self._labels, None
        if labels is not None:
            self.on_labels(labels)
        if changed:
            self.outbox.put(None)

    def deliver(self, report: Report) -> None:
        """Accept a diagnosis. Each incident becomes an event; the API counts repeated ones."""
        with self._lock:
            self.conditions.report(report, self._now)
            self._events += events_of(report)
        self.outbox.put(None)

    def _take_pods(self, rows: Mapping[str, Sequence[Columns]]) -> None:
        """Collect the pods of processes and containers that were not requested from the API yet."""
        tables = (columns for table in ("processes", "events") for columns in rows.get(table, ()))
        pods = {pod for columns in tables for pod in columns.get("pod") or () if pod}
        if pods or self._new_pods:
            self._new_pods |= pods - self._unlisted.keys()
            self._new_pods = {pod for pod in self._new_pods if pod not in self.pod_owners}

    def _job(self) -> dict[str, Any]:
        with self._lock:
            conditions = {str(type_): state and state.to_json() for type_, state in self.conditions.states.items()}
            taint = None
            if self._taint is not None and self._policy is not None:
                wanted = self._taint.wanted if self._taint_known else None
                taint = {"wanted": wanted, "effect": self._policy.effect, "share": self._policy.share}
            events = [event.to_json() for event in self._events]
            names = None
            if self._names_wanted:
                names = {"known": self.pod_owners.pods}
                self._unlisted |= dict.fromkeys(self._new_pods)
                self._unlisted = dict(list(self._unlisted.items())[-MAX_UNLISTED:])
                self._names_wanted = False
                self._new_pods.clear()
        return {"node": self._node, "conditions": conditions, "events": events, "taint": taint, "names": names}

    def _send(self, _: None) -> Delivery:
        """Start the child with the newest state."""
        job = self._job()
        self._names_done = job["names"] is None
        delivery = self._run(job)
        if not self._names_done:
            with self._lock:
                self._names_wanted = True
        return delivery

    def _run(self, job: Mapping[str, Any]) -> Delivery:
        try:
            done = run_child(
                isolated_python("exhume.kubernetes.api"),
                json.dumps(job).encode(),
                timeout_s=CHILD_TIMEOUT_S,
                cancel=self._cancel,
                environment=child_environment(),
            )
        except OSError as error:
            return Delivery(False, retry=True, problem=f"a process can't be started: {error}")
        try:
            result = json.loads(done.output)
        except ValueError:
            late = done.code is None or done.code < 0
            what = "the API did not answer in time" if late else f"code {done.code}: {done.last_error[:200]}"
            return Delivery(False, retry=True, problem=f"the process that reports ended: {what}")
        return self._take(result)

    def _take(self, result: Mapping[str, Any]) -> Delivery:
        """Apply the child's result."""
        done, now = set(result["events_done"]), self._now
        problems = result["problems"]
        retried = [each for each in problems if each["retry"]]
        dropped = {each["part"] for each in problems if not each["retry"]}
        with self._lock:
            left = () if "events" in dropped else [each for each in self._events if each.name not in done]
            self._events = deque(left, MAX_EVENTS)
            if not any(each["part"] == "conditions" for each in problems):
                self.conditions.adopt(result["conditions"], now)
            known, tainted = self._taint_known, result["tainted"]
            if self._taint is not None and tainted is not None:
                self._taint_known = True
                if tainted and not known:
                    self._taint.adopt(now)
            if result["labels"] is not None:
                self._labels = dict(result["labels"])
            self.pod_owners.learn(PodOwner(*each) for each in result["pods"])
            self._pods_left = result["pods_left"]
            # A denied request is retried with the next heartbeat.
            self._names_done |= result["names_done"] or "names" in dropped
        for each in problems:
            if not each["retry"] and each["text"] not in self._noted and len(self._noted) < MAX_EVENTS:
                self._noted.add(each["text"])
                _log.warning("--kubernetes: %s", each["text"])
        if retried:
            after = max(float(each["retry_after_s"]) for each in retried)
            return Delivery(False, retry=True, problem=str(retried[0]["text"]), retry_after_s=after)
        if self._taint is not None and self._taint_known and not known and self._taint.wanted != bool(tainted):
            self.outbox.put(None)
        return Delivery(True)
