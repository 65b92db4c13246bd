"""What metrics and the Kubernetes integration add to a recorder, next to one without them in the same seconds."""

import http.server
import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.load import FORKS_PER_SECOND, load
from bench.processes import Watched, start_exhume, watch
from bench.report import Row, Section
from exhume.kubernetes.reporter import HEARTBEAT_NS

RATE_HZ = 97
SCRAPE_S, ROUNDS = 15, 8
# Imports, the first report to the API and the first segment are paid for by then.
WARM_UP_S = 20
NODE, PODS = "bench-node", 50
# Of each kind: their difference says how far two recorders of the same kind lie apart.
RECORDERS = 2


def measure(work: Path, quick: bool) -> Section:
    rounds = 2 if quick else ROUNDS
    with own_api(work / "kubeconfig"):
        alone = _compare(work / "platform-idle", rounds)
        with load():
            time.sleep(1)
            loaded = _compare(work / "platform-loaded", rounds)
    return Section(
        "Metrics and Kubernetes integration",
        f"""
        {RECORDERS} recorders with `--metrics` (scraped every {SCRAPE_S} s) and `--kubernetes` (an API server of the
        benchmark's own, with {PODS} pods) run next to {RECORDERS} without, for {rounds * SCRAPE_S} s after a warm-up.
        CPU is the kernel's count of each process, its threads and its children. The process that talks to the API is
        started for the heartbeat every {HEARTBEAT_NS // 60_000_000_000} minutes, and for what changed: its CPU at the
        start is spread over that time and added. Loaded: every core compresses, and {FORKS_PER_SECOND} processes a
        second come and go; the load is marked as an incident, which is diagnosed in a process of its own and counted
        apart.
        """,
        [
            Row("added CPU, node as it is", alone.cpu_percent, "% of one core", 0.1, 0.03, digits=3),
            Row("added memory, node as it is", alone.memory / 1e6, "MB", 10.0, 5.0, digits=1),
            Row("of it reports to the API", alone.report_percent, "% of one core", digits=3),
            Row("two recorders of the same kind differ by", alone.noise_percent, "% of one core", digits=3),
            Row("added CPU, loaded node", loaded.cpu_percent, "% of one core", 0.1, 0.03, digits=3),
            Row("added memory, loaded node", loaded.memory / 1e6, "MB", 10.0, 5.0, digits=1),
            Row("diagnoses of incidents, loaded node", loaded.incidents_percent, "% of one core", digits=2),
            Row("two of the same kind differ by, loaded node", loaded.noise_percent, "% of one core", digits=3),
        ],
    )


class Spent(NamedTuple):
    """CPU seconds of a recorder and its threads, and of the processes that it started and that ended."""

    own: float
    children: float


class Added:
    """The difference between recorders with and without, over some seconds."""

    def __init__(self, plain: list["Spent"], full: list["Spent"], seconds: float, report: float, memory: float) -> None:
        own = [[each.own for each in kind] for kind in (plain, full)]
        children = [sum(each.children for each in kind) / len(kind) for kind in (plain, full)]
        self.report_percent = 100 * report / (HEARTBEAT_NS / 1e9)
        steady = (sum(own[1]) / len(full) - sum(own[0]) / len(plain)) / seconds
        self.cpu_percent = 100 * steady + self.report_percent
        self.incidents_percent = 100 * (children[1] - children[0]) / seconds
        self.noise_percent = 100 * max(max(each) - min(each) for each in own) / seconds
        self.memory = memory


def _compare(directory: Path, rounds: int) -> Added:
    plain: list[Watched] = []
    full: list[Watched] = []
    ports = [_free_port() for _ in range(RECORDERS)]
    for number, port in enumerate(ports):
        plain.append(start_exhume(directory.with_name(f"{directory.name}-plain{number}"), RATE_HZ))
        own = directory.with_name(f"{directory.name}-full{number}")
        kinds = ("--metrics", f"127.0.0.1:{port}", "--kubernetes", "--node-name", NODE)
        full.append(start_exhume(own, RATE_HZ, *kinds))
    try:
        time.sleep(WARM_UP_S)
        # By now the first child has reported and ended.
        before = [_spent(each) for each in (*plain, *full)]
        ended = [each.children for each in before]
        report = (sum(ended[RECORDERS:]) - sum(ended[:RECORDERS])) / RECORDERS
        for _ in range(rounds):
            for port in ports:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
            watch(SCRAPE_S, *plain, *full)
        after = [_spent(each) for each in (*plain, *full)]
        memory = (sum(_middle(each.rss) for each in full) - sum(_middle(each.rss) for each in plain)) / RECORDERS
    finally:
        for each in (*plain, *full):
            each.finish()
    spent = [Spent(now.own - then.own, now.children - then.children) for then, now in zip(before, after, strict=True)]
    return Added(spent[:RECORDERS], spent[RECORDERS:], rounds * SCRAPE_S, max(0.0, report), memory)


def _spent(watched: Watched) -> Spent:
    """By the kernel's clock of a process (kernel/time/posix-cpu-timers.c, MAKE_PROCESS_CPUCLOCK), in nanoseconds; that
    of children is counted in ticks."""
    pid = watched.process.pid
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    children = sum(int(value) for value in fields[13:15]) / os.sysconf("SC_CLK_TCK")
    return Spent(time.clock_gettime((~pid << 3) | 2), children)


def _middle(values: list[int]) -> float:
    return sorted(values)[len(values) // 2]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def own_api(kubeconfig: Path) -> Iterator[None]:
    """A server with the part of the Kubernetes API that is used, and a kubeconfig for it in the environment."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    pods = [
        {"metadata": {"name": f"p{number}", "namespace": "a", "uid": f"uid-{number}", "ownerReferences": [owner]}}
        for number in range(PODS)
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {}}, "status": {"conditions": []}}
    listed = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods}

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.dumps(listed if self.path.startswith("/api/v1/pods") else node).encode()
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
    access = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    kubeconfig.write_text(json.dumps(access))
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = str(kubeconfig)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        if before is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = before
