"""From a recording to the lake: sealed segments are summarised into the spool, and sent from there.

Runs next to the recorder in a separate low-priority process and reads only sealed segments, so nothing that it does or
waits for affects the tick.
"""

import hashlib
import json
import logging
import os
import threading
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from exhume.diagnose.moments import TOGETHER_NS, Moment, best_cause, moments_of
from exhume.fleet.attributes import attributes_of
from exhume.fleet.batch import BadBatch, decode, is_node_name, to_arrow
from exhume.fleet.lake import Lake, LakeError, bundle_path, node_hash
from exhume.fleet.schema import ATTRIBUTES, INCIDENTS, JOBS, MAX_KEY_BYTES, MAX_VALUE_BYTES, SUMMARIES, TABLES
from exhume.fleet.spool import Entry, Spool, SpoolError
from exhume.fleet.summary import Stretch, Summarised, Summariser, Values, stretches
from exhume.model.clock import NANOS, Window
from exhume.model.errors import ExhumeError, NoRecording
from exhume.model.facts import RecordingFacts
from exhume.model.isolation import isolated_python
from exhume.model.redaction import redact_line
from exhume.model.settings import PUSH, PUSH_CA_FILE
from exhume.model.stop import Stop
from exhume.model.tables import INCIDENT
from exhume.notify.child import Cancel, child_environment, run_child
from exhume.notify.limits import TokenBucket
from exhume.notify.outbox import Backoff, Delivery
from exhume.notify.post import Trust, post
from exhume.notify.report import Mark, Report
from exhume.store.format.names import SegmentName
from exhume.store.read.events import EventView
from exhume.store.read.index import Segment, in_recorded_order
from exhume.store.read.inventory import inventory_at
from exhume.store.read.recording import Recording

_log = logging.getLogger(__name__)

# The table whose rows indicate that attributes may have changed.
INVENTORY = "inventory"
BATCHES, BUNDLES = "/v1/batches", "/v1/bundles"
SENT_AT_HEADER = "X-Exhume-Sent-At"
# How far back to start if a recording has no cursor yet.
FIRST_NS = 3600 * NANOS
# The maximum number of segments per batch: some hours of minutes.
MOST_SEGMENTS = 240
POLL_S = 5.0
# Every minute to a hub; less often to an object store, where a file costs more than its content.
HUB_EVERY_S, STORE_EVERY_S = 60.0, 600.0
# Spreads requests, because many nodes end their minute in the same second.
SPREAD_S = 30
# Permanent errors: a retry would be refused again.
_REFUSALS = (400, 413, 415, 422)
_OTHER_BATCH = 409
# Rate limit of incidents with a diagnosis and a bundle: each takes some seconds of CPU.
BUNDLES_AT_ONCE, BUNDLE_EVERY_S = 4, 600.0
BUNDLE_TIMEOUT_S = 180.0
MAX_BUNDLE_BYTES = 32 << 20
_LONGEST_FINDING, _LONGEST_SUMMARY, _LONGEST_NAME = 60_000, 2000, 200
# Limits on texts that came from event senders: a single text that the hub refuses would cost the whole batch.
_LONGEST_OF_JOB = {"job": _LONGEST_NAME, "member": _LONGEST_NAME, "reason": _LONGEST_SUMMARY}
# An incident is complete when this much was recorded after its last mark.
_SETTLE_NS = TOGETHER_NS + 5 * NANOS

Attributes = Callable[[Recording, RecordingFacts], Mapping[str, str]]
BundleMaker = Callable[[Moment, Path, Cancel], bool]


class Target(Protocol):
    """A destination for batches."""

    every_s: float

    def deliver(self, entry: Entry) -> Delivery: ...


class HubTarget:
    """A hub, with a token: its file is read for each request, so that a rotated token is used. `ca_file` has the
    certificate authority if it is not one of the system's. Raises UsageError for an address that would send the token
    in clear text."""

    every_s = HUB_EVERY_S

    def __init__(
        self, url: str, token: str | None = None, token_file: Path | None = None, ca_file: Path | None = None
    ) -> None:
        self._url, self._token, self._token_file = (PUSH.read(url) or "").rstrip("/"), token, token_file
        self._trust = Trust(ca_file, PUSH_CA_FILE.flag)

    def deliver(self, entry: Entry) -> Delivery:
        token = self._token
        try:
            if self._token_file is not None:
                token = self._token_file.read_text().strip()
            body = entry.read()
        except (OSError, UnicodeDecodeError) as error:
            return Delivery(False, retry=True, problem=f"{error}")
        headers = {SENT_AT_HEADER: str(time.time_ns() // 1000), "Content-Type": "application/zip"}
        if entry.incident is not None:
            return post(f"{self._url}{BUNDLES}/{entry.incident}", token, body, 60.0, headers, trust=self._trust)
        headers |= {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        return post(f"{self._url}{BATCHES}", token, body, 30.0, headers, trust=self._trust)


class LakeTarget:
    """The lake itself. File names are derived from the batch, so a batch that is sent twice replaces itself."""

    def __init__(self, lake: Lake, node: str) -> None:
        self._lake, self._node = lake, node
        self.every_s = HUB_EVERY_S if lake.directory is not None else STORE_EVERY_S

    def deliver(self, entry: Entry) -> Delivery:
        try:
            if entry.incident is not None:
                self._lake.put(bundle_path(self._node, entry.incident), entry.path)
                return Delivery(True)
            batch = decode(entry.read())
            for name, columns in batch.tables.items():
                table = TABLES[name]
                rows = to_arrow(table, columns, batch.node)
                if not rows.num_rows:
                    continue
                first = datetime.fromtimestamp(min(columns[table.time]) // 1_000_000, UTC)
                stem = f"{node_hash(batch.node)}-{first:%Y%m%dT%H%M}-{batch.spool[:8]}{batch.seq:08d}"
                self._lake.write(table, rows, stem)
        except (LakeError, OSError) as error:
            return Delivery(False, retry=True, problem=str(error))
        except BadBatch as error:
            return Delivery(False, problem=str(error), code=400)
        return Delivery(True)


@dataclass(slots=True)
class Sent:
    """The result of sending the spool."""

    batches: int = 0
    bundles: int = 0
    minutes: int = 0
    refused: int = 0
    problem: str = ""


class Pusher:
    """Pushes one recording. `first_ns`: how far back to begin with a recording that was never pushed."""

    def __init__(
        self,
        directory: Path,
        spool: Spool,
        target: Target,
        *,
        attributes: Attributes | None = None,
        bundles: BundleMaker | None = None,
        first_ns: int = FIRST_NS,
    ) -> None:
        self._directory, self._spool, self._target = directory, spool, target
        self._attributes = attributes or recorded_attributes
        self._bundles, self._first_ns = bundles, first_ns
        self._summariser = Summariser(spool.state.cost_per_zombie_us)
        self._budget = TokenBucket(BUNDLES_AT_ONCE, BUNDLE_EVERY_S)
        self._recording: Recording | None = None
        # The directory's names and mtime when it was last listed, and the segments still to summarise.
        self._names: set[str] | None = None
        self._changed = 0
        self._left: list[Segment] = []
        self._marks: list[EventView] | None = None
        self._attributes_of: RecordingFacts | None = None
        self._found_attributes: Mapping[str, str] = {}

    @property
    def spool(self) -> Spool:
        return self._spool

    def collect(self, cancel: Cancel, *, final: bool = False) -> int:
        """Summarise newly sealed segments into the spool; with `final`, include a minute that is not complete. Returns
        the number of minutes. Raises SpoolError."""
        recording = self._opened()
        minutes = 0
        while recording is not None and not cancel.is_set() and (chosen := self._chosen(final=final)):
            try:
                minutes += self._collect(recording, chosen, cancel, final=final)
            except SpoolError:
                # The cursor was rolled back, so list the directory again.
                self._names = self._marks = None
                raise
            self._left = self._left[sum(len(stretch.segments) for stretch in chosen) :]
        return minutes

    def send(self, cancel: Cancel) -> Sent:
        """Send the spool, oldest entry first, until it is empty or the receiver is unavailable."""
        sent = Sent()
        for entry in self._spool.entries():
            if cancel.is_set():
                break
            delivery = self._target.deliver(entry)
            if delivery.code == _OTHER_BATCH:
                _log.warning("push: the hub knows other batches by these numbers; the spool is numbered again")
                self._spool.renumber()
                delivery = self._target.deliver(entry)
            refused = delivery.code in _REFUSALS
            if not delivery.delivered and not refused:
                sent.problem = delivery.problem or "it was not taken"
                break
            if refused:
                sent.refused += 1
                _log.warning("push: refused for good, and dropped: %s", delivery.problem)
            elif entry.incident is not None:
                sent.bundles += 1
            else:
                sent.batches += 1
                sent.minutes += entry.minutes
            self._spool.remove(entry, refused=refused)
        return sent

    def follow(self, stop: Stop | threading.Event, poll_s: float = POLL_S) -> None:
        """Push until a stop is requested; segments sealed by then are pushed too."""
        backoff = Backoff(first_s=5.0)
        due, failing = 0.0, False
        spread = int(hashlib.sha256(str(self._directory).encode() + self._spool.state.spool.encode()).hexdigest(), 16)
        delay = spread % max(1, min(SPREAD_S, int(self._target.every_s / 2)))
        while not stop.wait(poll_s):
            now = time.monotonic()
            if now < due:
                continue
            try:
                collected = self.collect(stop)
            except ExhumeError as error:
                failing = _warn(failing, f"push: {error}; tried again")
                due = now + backoff.next_s()
                continue
            sent = self.send(stop)
            if sent.problem:
                failing = _warn(failing, f"push: {sent.problem}; it stays in {self._spool.directory}, tried again")
                due = time.monotonic() + backoff.next_s()
            else:
                if failing and (sent.batches or sent.bundles):
                    _log.warning("push: delivers again")
                    failing = False
                backoff.reset()
                # After something was collected, the next minute is a minute away.
                due = now + (max(0.0, self._target.every_s - 2 * poll_s) + delay if collected else 0.0)
                delay = 0
        self.collect(_NEVER, final=True)
        self.send(_NEVER)

    # From the recording into the spool.

    def _opened(self) -> Recording | None:
        """The recording; newly sealed segments are added to those still to summarise."""
        try:
            if self._recording is None:
                self._recording = Recording(self._directory)
            changed = self._directory.stat().st_mtime_ns
            if self._names is None or changed != self._changed:
                with os.scandir(self._directory) as entries:
                    names = {entry.name for entry in entries}
                # A recording may have ten thousand segments: only new names are parsed.
                new = self._sealed(names - (self._names or set()))
                self._left = self._after_cursor(new) if self._names is None else self._left + new
                self._names, self._changed = names, changed
        except (NoRecording, FileNotFoundError):
            return None
        return self._recording

    def _sealed(self, names: set[str]) -> list[Segment]:
        """The sealed segments among some names of the directory, in recorded order."""
        parsed = ((SegmentName.of_entry(name), name) for name in names)
        found = (Segment(known, self._directory / name) for known, name in parsed if known is not None)
        return in_recorded_order(segment for segment in found if segment.sealed)

    def _chosen(self, *, final: bool) -> list[Stretch]:
        """The next stretches to summarise, up to some hours of them."""
        found: list[Stretch] = []
        taken = 0
        for stretch in stretches(self._left):
            # The last minute of the newest segment may continue in the next one.
            if (not stretch.whole and not final) or taken >= MOST_SEGMENTS:
                break
            found.append(stretch)
            taken += len(stretch.segments)
        return found

    def _after_cursor(self, sealed: list[Segment]) -> list[Segment]:
        """The segments after the last summarised one, in recorded order."""
        cursor = self._spool.state.cursor
        if cursor is not None:
            boot, start = cursor
            mine = [(place, each.name.start_ms) for place, each in enumerate(sealed) if each.name.boot == boot]
            passed = [place for place, start_ms in mine if start_ms <= start]
            # If that segment was removed meanwhile, all that are left are later.
            return sealed[passed[-1] + 1 :] if passed else sealed
        newest = sealed[-1].name.span.until if sealed else 0
        return [segment for segment in sealed if segment.name.span.until > newest - self._first_ns]

    def _collect(self, recording: Recording, chosen: Sequence[Stretch], cancel: Cancel, *, final: bool) -> int:
        state = self._spool.state
        pending = self._pending_marks(recording)
        summaries: Values = {each.name: [] for each in SUMMARIES.schema if each.name not in _OF_HUB}
        jobs: Values = {each.name: [] for each in JOBS.schema if each.name not in _OF_HUB}
        newest: Summarised | None = None
        for stretch in chosen:
            last = stretch.segments[-1].name
            found = self._summariser.summarise(recording, stretch)
            if found is not None:
                newest = found
                _extend(summaries, found.columns)
                _extend(jobs, found.jobs | _bounded_jobs(found.jobs))
                pending += [event for event in found.events if event.kind == INCIDENT]
            state.cursor = last.boot, last.start_ms
        if newest is None:
            self._spool.commit("", {})
            return 0
        node = node_name(newest.facts.node)
        until = chosen[-1].segments[-1].name.span.until
        incidents = self._incidents(node, pending, until, cancel, final=final)
        if state.dropped_minutes and summaries["minute"]:
            summaries["dropped_minutes"][-1] = state.dropped_minutes
            state.dropped_minutes = 0
        tables = {
            SUMMARIES.name: _known(summaries),
            JOBS.name: _known(jobs),
            ATTRIBUTES.name: self._attribute_changes(newest.facts, chosen, until),
            INCIDENTS.name: incidents,
        }
        self._spool.commit(node, {name: columns for name, columns in tables.items() if any(columns.values())})
        return len(summaries["minute"])

    def _pending_marks(self, recording: Recording) -> list[EventView]:
        """The marks that are not yet part of an incident; after a restart, they are read from the recording again."""
        if self._marks is None:
            since, cursor = self._spool.state.marks_since, self._spool.state.cursor
            self._marks = []
            if since is not None and cursor is not None:
                upto = [each.name.span.until for each in recording.segments if each.name.key == cursor]
                if upto:
                    self._marks = recording.events(Window(since, upto[0]), [INCIDENT])
        return list(self._marks)

    def _incidents(self, node: str, marks: list[EventView], until: int, cancel: Cancel, *, final: bool) -> Values:
        """Rows of the incidents that are complete; their bundles are added to the spool."""
        rows: Values = {each.name: [] for each in INCIDENTS.schema if each.name not in _OF_HUB}
        marks.sort(key=lambda mark: mark.wall)
        waiting: list[EventView] = []
        for moment in moments_of(marks):
            if not final and max(moment.window.until, moment.marks[-1].wall + _SETTLE_NS) > until:
                waiting += moment.marks
            else:
                self._add_incident(rows, node, moment, cancel)
        self._marks = sorted(waiting, key=lambda mark: mark.wall)
        self._spool.state.marks_since = self._marks[0].wall if self._marks else None
        return _known(rows)

    def _add_incident(self, rows: Values, node: str, moment: Moment, cancel: Cancel) -> None:
        first, last = moment.marks[0], moment.marks[-1]
        incident = hashlib.sha256(f"{node}\n{first.wall}\n{first.trigger}".encode()).hexdigest()[:16]
        row: dict[str, Any] = {
            "at": first.wall // 1000,
            "until": (last.wall + NANOS) // 1000,
            "id": incident,
            "severity": "critical" if first.severity == "critical" else "warning",
            "core": first.cpu,
            "summary": redact_line(first.text)[:_LONGEST_SUMMARY],
        }
        if self._bundles is not None and self._budget.take(time.monotonic()):
            place = self._spool.place_of_bundle(incident)
            made = self._bundles(moment, place, cancel)
            diagnosis = diagnosis_in(place) if made else None
            if diagnosis is not None:
                row |= explained(node, moment, diagnosis)
                self._remember_cost(diagnosis)
            if made and place.stat().st_size <= MAX_BUNDLE_BYTES:
                row["bundle"] = bundle_path(node, incident)
            else:
                place.unlink(missing_ok=True)
        for name in rows:
            rows[name].append(row.get(name))

    def _remember_cost(self, diagnosis: Mapping[str, Any]) -> None:
        for finding in diagnosis.get("findings", ()):
            forecast = finding.get("forecast") or {}
            cost = forecast.get("cost_us")
            if cost is not None and forecast.get("what") == "zombies":
                self._summariser.cost_per_zombie_us = round(float(cost["value"]), 3)
        self._spool.state.cost_per_zombie_us = self._summariser.cost_per_zombie_us

    def _known_attributes(self, facts: RecordingFacts, chosen: Sequence[Stretch]) -> Mapping[str, str]:
        """The current attributes of the node. An inventory is recorded at the start, on changes, and once an hour: it
        is read again only then."""
        segments = (segment for stretch in chosen for segment in stretch.segments)
        if self._attributes_of != facts or any(segment.file(INVENTORY).exists() for segment in segments):
            self._found_attributes = self._attributes(Recording(self._directory), facts)
            self._attributes_of = facts
        return self._found_attributes

    def _attribute_changes(self, facts: RecordingFacts, chosen: Sequence[Stretch], until: int) -> Values:
        """The attributes that changed since the last push; all of them once a day."""
        state = self._spool.state
        known = {
            key[:MAX_KEY_BYTES]: _bounded(value, MAX_VALUE_BYTES)
            for key, value in self._known_attributes(facts, chosen).items()
        }
        day = datetime.fromtimestamp(until // NANOS, UTC).date().isoformat()
        gone = {key: None for key in state.attributes if key not in known}
        changed = known if day != state.attributes_day else dict(known.items() - state.attributes.items())
        rows: list[tuple[str, str | None]] = [*sorted(changed.items()), *gone.items()]
        state.attributes, state.attributes_day = known, day
        if not rows:
            return {}
        keys, values = zip(*rows, strict=True)
        return {"at": [until // 1000] * len(rows), "key": list(keys), "value": list(values)}


_NEVER = threading.Event()
_OF_HUB = ("node", "received_at", "clock_off_s")


class BundleChild:
    """Runs `exhume export bundle` in a child process, which diagnoses the incident and packs its evidence without
    secrets, so that the pushing process keeps none of that memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, moment: Moment, place: Path, cancel: Cancel) -> bool:
        since, until = (f"@{wall // NANOS}.{wall % NANOS:09d}" for wall in (moment.window.since, moment.window.until))
        command = isolated_python(
            *("exhume.cli.main", "export", "bundle", "--utc", "--dir", self._directory.absolute()),
            *("--since", since, "--until", until, "-o", place),
        )
        try:
            done = run_child(command, b"", timeout_s=BUNDLE_TIMEOUT_S, cancel=cancel, environment=child_environment())
        except OSError as error:
            _log.warning("push: no bundle: %s", error)
            return False
        if done.code != 0:
            _log.warning("push: no bundle: %s", done.last_error or f"it ended with code {done.code}")
        return done.code == 0 and place.exists()


def diagnosis_in(bundle: Path) -> Mapping[str, Any] | None:
    """Extract the diagnosis from a bundle made by ourselves."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            found = json.loads(archive.read("diagnosis.json"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    return found if isinstance(found, dict) else None


def explained(node: str, moment: Moment, diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an incident that come from its diagnosis."""
    mark = moment.marks[0]
    findings = list(diagnosis.get("findings", ()))
    best = best_cause([finding["cause"] for finding in findings], moment.trigger)
    if best is not None:
        findings.insert(0, findings.pop(best))
    report = Report(
        node, (Mark(mark.time, mark.wall, mark.trigger or "", mark.text),), {**diagnosis, "findings": findings}
    )
    row: dict[str, Any] = {
        "cause": report.cause,
        "severity": report.severity,
        "confidence": round(report.confidence, 3),
        "summary": report.summary[:_LONGEST_SUMMARY],
    }
    if not report.findings:
        return row
    finding = report.findings[0]
    culprit = finding.get("culprit") or {}
    text = json.dumps(finding, separators=(",", ":"))
    named = {
        "function": culprit.get("function"),
        "process": culprit.get("comm"),
        "culprit": _owner(culprit) or _unit_of(culprit.get("cgroup")) or culprit.get("comm"),
        "leaker": _leaker(finding, culprit),
    }
    return {
        **row,
        "core": culprit.get("cpu"),
        "lost_core_s": round(float(finding.get("lost_s") or 0.0), 2),
        **{name: None if value is None else _bounded(str(value), _LONGEST_NAME) for name, value in named.items()},
        # Cutting would make the JSON invalid: a finding that is too long loses its chain.
        "finding": text
        if len(text.encode()) <= _LONGEST_FINDING
        else json.dumps({**finding, "chain": [], "cut": True}),
    }


def _owner(culprit: Mapping[str, Any]) -> str | None:
    """What an operator can act on: the owner of a pod, else the pod, else the container."""
    return next((culprit[name] for name in ("owner", "pod_name", "container_name") if culprit.get(name)), None)


def _unit_of(cgroup: str | None) -> str | None:
    """The systemd unit of a cgroup."""
    parts = [part for part in (cgroup or "").split("/") if part.endswith((".service", ".scope"))]
    return parts[-1] if parts else None


def _leaker(finding: Mapping[str, Any], culprit: Mapping[str, Any]) -> str | None:
    """The unit, container or pod that a finding names and that differs from where the CPU time went."""
    own = {str(value) for value in culprit.values() if value} | {_unit_of(culprit.get("cgroup"))}
    others = [
        each
        for kind in ("unit", "pod", "container")
        for each in finding.get("entities", ())
        if each.get("kind") == kind and not {each.get("id"), each.get("name")} & own
    ]
    return str(others[0].get("name") or others[0].get("id")) if others else None


def facts_attributes(_: Recording, facts: RecordingFacts) -> Mapping[str, str]:
    """Attributes from the recording's facts; the node's labels become separate attributes."""
    known = {"kernel": facts.kernel, "arch": facts.arch, "cores": str(facts.cores), "exhume": facts.exhume_version}
    if facts.cpu_cgroup_version is not None:
        known["cgroup.version"] = str(facts.cpu_cgroup_version)
    own = ("zone", "image", "instance_type", "pool")
    labels = {key if key in own else f"label.{key}": value for key, value in facts.labels.items()}
    return {key: value for key, value in (known | labels).items() if value}


def recorded_attributes(recording: Recording, facts: RecordingFacts) -> Mapping[str, str]:
    """Attributes from a recording: its facts, and its inventory if it has one."""
    inventory = inventory_at(recording)
    return {**facts_attributes(recording, facts), **(attributes_of(inventory) if inventory is not None else {})}


def node_name(recorded: str) -> str:
    """The node's name in the lake. Raises ExhumeError for an invalid one."""
    if not is_node_name(recorded):
        raise ExhumeError(f"{recorded[:80]!r} can't be the name of a node in a lake; set another one with --node-name")
    return recorded


def _extend(columns: Values, more: Mapping[str, Sequence[Any]]) -> None:
    rows = len(next(iter(more.values()), ()))
    for name, values in columns.items():
        values.extend(more.get(name, [None] * rows))


def _known(columns: Values) -> Values:
    """Drop the columns that are null in every row."""
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}


def _bounded_jobs(jobs: Values) -> Values:
    return {
        name: [None if value is None else _bounded(value, most) for value in jobs[name]]
        for name, most in _LONGEST_OF_JOB.items()
    }


def _bounded(text: str, most: int) -> str:
    """A text cut to at most `most` bytes."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _warn(failing: bool, message: str) -> bool:
    """Log a warning once, until pushing works again."""
    (_log.info if failing else _log.warning)("%s", message)
    return True
