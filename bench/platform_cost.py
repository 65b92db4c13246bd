"""What metrics and the Kubernetes integration add to a recorder, next to one without them in the same seconds; and how
long it takes from an incident to its condition, event and webhook."""

import http.server
import json
import os
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.load import FORKS_PER_SECOND, hold_core, load
from bench.processes import BenchError, Watched, start, start_exhume, watch
from bench.report import Row, Section
from bench.timed_recorder import DIAGNOSES, OBSERVERS, REPORTS, WEBHOOKS
from exhume.kubernetes.reporter import HEARTBEAT_NS
from exhume.notify.limits import DiagnosisPace

RATE_HZ = 97
SCRAPE_S, ROUNDS = 15, 8
# Imports, the first report to the API and the first segment are paid for by then.
WARM_UP_S = 20
NODE, PODS = "bench-node", 50
# Of each kind: their difference says how far two recorders of the same kind lie apart.
RECORDERS = 2
# Incidents of each kind; a recorder of its own for each, as the same cause is not reported twice.
INCIDENTS = 3
CALM_S, PATIENCE_S, ENDED_S = 8.0, 60.0, 3.0
HOOK = "/hook"
_CORE = "% of one core"


def measure(work: Path, quick: bool) -> Section:
    rounds, incidents = (2, 1) if quick else (ROUNDS, INCIDENTS)
    with own_api(work / "kubeconfig") as api:
        alone = _compare(work / "platform-idle", rounds)
        with load():
            time.sleep(1)
            loaded = _compare(work / "platform-loaded", rounds)
        line, core = (
            [deliver(work / f"delivery-{incident.condition}{number}", api, incident) for number in range(incidents)]
            for incident in (logged_reset, held_core)
        )
    diagnosis, reports = (sum(each[place] for each in core) / incidents for place in (1, 2))
    seconds = rounds * SCRAPE_S
    return Section(
        "Metrics and Kubernetes integration",
        f"""
        {RECORDERS} recorders with `--metrics` (scraped every {SCRAPE_S} s) and `--kubernetes` (an API server of the
        benchmark's own, with {PODS} pods) run next to {RECORDERS} without, for {seconds} s after a warm-up. Steady is
        what is there without an incident: the observers in the recorder's thread and the threads of these options, by
        the kernel's clocks of threads, and the process that talks to the API for the heartbeat every
        {HEARTBEAT_NS // 60_000_000_000} minutes, its CPU spread over that time. It is not a difference of whole
        recorders: that is a row of its own, as two of the same kind differ by more under load than what is measured.
        An incident costs more, in processes of its own: a diagnosis, and reports to the API and the webhook (children
        that run at the same time are counted for each); trouble that goes on is diagnosed ever later. Loaded: every
        core compresses, and {FORKS_PER_SECOND} processes a second come and go, which may be marked as an incident:
        rows of their own say what that took. Times to delivery are from the beginning of the incident until the
        slowest of node condition, event and webhook has arrived, the slowest of {incidents}: for a line in the kernel
        log about a network card, and for a core that a program keeps in the kernel (marked after 2 s of it).
        """,
        [
            Row("steady added CPU, node as it is", alone.steady_percent, _CORE, 0.1, 0.03, digits=3),
            Row("added memory, node as it is", alone.memory / 1e6, "MB", 10.0, 5.0, digits=1),
            Row("of it reports to the API every half hour", alone.report_percent, _CORE, digits=3),
            Row("difference of whole recorders, without children", alone.difference_percent, _CORE, digits=3),
            Row("two of the same kind differ by", alone.noise_percent, _CORE, digits=3),
            Row("steady added CPU, loaded node", loaded.steady_percent, _CORE, 0.1, 0.03, digits=3),
            Row("added memory, loaded node", loaded.memory / 1e6, "MB", 10.0, 5.0, digits=1),
            Row(
                "difference of whole recorders, without children, loaded node",
                loaded.difference_percent,
                _CORE,
                digits=3,
            ),
            Row("two of the same kind differ by, loaded node", loaded.noise_percent, _CORE, digits=3),
            Row(f"diagnoses in {seconds} s of load", loaded.calls[DIAGNOSES], digits=1),
            Row(f"all diagnoses and reports in {seconds} s of load", loaded.incidents_percent, _CORE, digits=2),
            Row("diagnosis of a core held in the kernel", diagnosis, "CPU s"),
            Row("its reports to the API and the webhook", reports, "CPU s"),
            Row("both over a day in which that goes on", _lasting_percent(diagnosis + reports), _CORE, digits=3),
            Row("line in the kernel log to condition, event and webhook", _slowest(line), "s", 15.0, 5.0, digits=1),
            Row("core held in the kernel to condition, event and webhook", _slowest(core), "s", 15.0, 5.0, digits=1),
        ],
    )


class Clocks(NamedTuple):
    """CPU seconds and calls by what they were spent for, as `bench.timed_recorder` writes them."""

    seconds: dict[str, float]
    calls: dict[str, int]

    @classmethod
    def read(cls, file: Path) -> "Clocks":
        """The newest."""
        lines = file.read_text().splitlines() if file.exists() else []
        if not lines:
            raise BenchError(f"the recorder has not written {file.name}")
        found = json.loads(lines[-1])
        return cls(found["seconds"], found["calls"])


class Added:
    """What recorders with the options took over some seconds: by clocks inside them, and next to those without."""

    def __init__(
        self, plain: list[float], full: list[float], clocks: list[tuple[Clocks, Clocks]], seconds: float, memory: float
    ) -> None:
        self._lately = {
            what: sum(now.seconds.get(what, 0.0) - then.seconds.get(what, 0.0) for then, now in clocks) / len(clocks)
            for what in (OBSERVERS, "threads", DIAGNOSES, REPORTS)
        }
        self.calls = {
            what: sum(now.calls.get(what, 0) - then.calls.get(what, 0) for then, now in clocks) / len(clocks)
            for what in (DIAGNOSES, REPORTS)
        }
        self._all = [now for _, now in clocks]
        self.report_percent = 100 * self._each(REPORTS) / (HEARTBEAT_NS / 1e9)
        self.steady_percent = 100 * (self._lately[OBSERVERS] + self._lately["threads"]) / seconds + self.report_percent
        self.difference_percent = 100 * (sum(full) / len(full) - sum(plain) / len(plain)) / seconds
        self.incidents_percent = 100 * (self._lately[DIAGNOSES] + self._lately[REPORTS]) / seconds
        self.noise_percent = 100 * max(max(each) - min(each) for each in (plain, full)) / seconds
        self.memory = memory

    def _each(self, what: str) -> float:
        """The mean CPU seconds of a call, those of the warm-up included; 0 where there was none."""
        calls = sum(each.calls.get(what, 0) for each in self._all)
        return sum(each.seconds.get(what, 0.0) for each in self._all) / calls if calls else 0.0


def _lasting_percent(each: float) -> float:
    """Of a day in which the same trouble is marked every half minute, by the pace of diagnoses."""
    pace, count, mark = DiagnosisPace(), 0, [("core", 0)]
    for now in range(0, 86_400, 30):
        if pace.due(mark, now):
            pace.diagnosed(mark, "same", now)
            count += 1
    return 100 * count * each / 86_400


def _compare(directory: Path, rounds: int) -> Added:
    plain: list[Watched] = []
    full: list[Watched] = []
    ports = [_free_port() for _ in range(RECORDERS)]
    files = [directory.with_name(f"{directory.name}-clocks{number}") for number in range(RECORDERS)]
    for number, (port, file) in enumerate(zip(ports, files, strict=True)):
        plain.append(start_exhume(directory.with_name(f"{directory.name}-plain{number}"), RATE_HZ))
        own = directory.with_name(f"{directory.name}-full{number}")
        full.append(_start_timed(own, file, "--metrics", f"127.0.0.1:{port}"))
    try:
        time.sleep(WARM_UP_S)
        # By now the first child has reported and ended.
        before, then = [_own_cpu(each) for each in (*plain, *full)], [Clocks.read(file) for file in files]
        for _ in range(rounds):
            for port in ports:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
            watch(SCRAPE_S, *plain, *full)
        after, now = [_own_cpu(each) for each in (*plain, *full)], [Clocks.read(file) for file in files]
        memory = (sum(_middle(each.rss) for each in full) - sum(_middle(each.rss) for each in plain)) / RECORDERS
    finally:
        for each in (*plain, *full):
            each.finish()
    spent = [end - begin for begin, end in zip(before, after, strict=True)]
    clocks = list(zip(then, now, strict=True))
    return Added(spent[:RECORDERS], spent[RECORDERS:], clocks, rounds * SCRAPE_S, memory)


def _start_timed(directory: Path, clocks: Path, *more: str) -> Watched:
    """A recorder with `--kubernetes` that writes what its parts cost."""
    args = ["record", "--dir", str(directory), "--rate", str(RATE_HZ), "--kubernetes", "--node-name", NODE, *more]
    command = [sys.executable, "-m", "bench.timed_recorder", str(clocks), *args]
    return start("exhume record", command, directory.with_suffix(".log"))


def _own_cpu(watched: Watched) -> float:
    """CPU seconds of a process and its threads, without its children, by the kernel's clock of a process
    (kernel/time/posix-cpu-timers.c, MAKE_PROCESS_CPUCLOCK): in nanoseconds, not in ticks."""
    return time.clock_gettime((~watched.process.pid << 3) | 2)


def _middle(values: list[int]) -> float:
    return sorted(values)[len(values) // 2]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Incident(NamedTuple):
    """What a recorder is to report: the condition it sets, and how it is made for as long as a block lasts."""

    condition: str
    made: Callable[[], Any]


@contextmanager
def _logged() -> Iterator[None]:
    try:
        Path("/dev/kmsg").write_text("<4>ena 0000:00:05.0 eth7: Device reset completed successfully\n")
    except OSError as error:
        raise BenchError(f"/dev/kmsg can't be written to: {error.strerror}") from error
    yield


logged_reset, held_core = Incident("NICReset", _logged), Incident("CPUStarved", hold_core)


class Delivered(NamedTuple):
    """Seconds from the beginning of an incident to its condition, event and webhook, whichever comes last; CPU seconds
    of its diagnosis, and of its reports."""

    seconds: float
    diagnosis: float
    reports: float


def _slowest(delivered: list[Delivered]) -> float:
    return max(each.seconds for each in delivered)


def deliver(directory: Path, api: "OwnApi", incident: Incident) -> Delivered:
    """Make an incident for a recorder of its own, and wait for its reports."""
    api.requests.clear()
    clocks = directory.with_name(f"{directory.name}-clocks")
    recorder = _start_timed(directory, clocks, "--webhook", api.url + HOOK)
    try:
        api.wait("the first report", lambda each: each.sets("") is not None)
        # A calm time to compare with.
        time.sleep(CALM_S)
        before = Clocks.read(clocks)
        api.requests.clear()
        began = time.monotonic()
        with incident.made():
            arrived = [
                api.wait("the condition", lambda each: each.sets(incident.condition) == "True"),
                api.wait("the event", lambda each: each.is_event),
                api.wait("the webhook", lambda each: each.path == HOOK),
            ]
        # The children end, and the next tick has written what they took.
        time.sleep(ENDED_S)
        after = Clocks.read(clocks)
    finally:
        recorder.finish()
    spent = {what: after.seconds.get(what, 0.0) - before.seconds.get(what, 0.0) for what in after.seconds}
    reports = spent.get(REPORTS, 0.0) + spent.get(WEBHOOKS, 0.0)
    return Delivered(max(arrived) - began, spent.get(DIAGNOSES, 0.0), reports)


class Request(NamedTuple):
    """What the server was asked, and when (monotonic seconds)."""

    at: float
    method: str
    path: str
    body: Any

    def sets(self, condition: str) -> str | None:
        """The status that it gives a condition of the node (or any, without a name); None where it gives none."""
        if self.method != "PATCH" or not self.path.endswith("/status"):
            return None
        found = {each["type"]: str(each["status"]) for each in self.body["status"]["conditions"]}
        return found.get(condition) if condition else next(iter(found.values()), None)

    @property
    def is_event(self) -> bool:
        is_new = self.method == "POST" and self.path.endswith("/events")
        return is_new and self.body["involvedObject"]["kind"] == "Node"


@dataclass
class OwnApi:
    """A server with the part of the Kubernetes API that is used, and with a place for webhooks."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)

    def wait(self, what: str, fits: Callable[[Request], bool]) -> float:
        """When the first request came that fits; waits for it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = next((each for each in list(self.requests) if fits(each)), None)
            if found is not None:
                return found.at
            time.sleep(0.02)
        raise BenchError(f"not within {PATIENCE_S:.0f} s: {what}")


@contextmanager
def own_api(kubeconfig: Path) -> Iterator[OwnApi]:
    """The server, and a kubeconfig for it in the environment."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    pods = [
        {"metadata": {"name": f"p{number}", "namespace": "a", "uid": f"uid-{number}", "ownerReferences": [owner]}}
        for number in range(PODS)
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {}}, "status": {"conditions": []}}
    listed = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods}
    api = OwnApi()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            given = json.loads(content) if content else None
            api.requests.append(Request(time.monotonic(), self.command, urlsplit(self.path).path, given))
            # What is created comes back as it is.
            answer = given if self.command == "POST" else listed if self.path.startswith("/api/v1/pods") else node
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PATCH = do_POST = _answer

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    access = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    kubeconfig.write_text(json.dumps(access))
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = str(kubeconfig)
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        if before is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = before
