"""What a fleet costs: the hub's time for a summary, the bytes of a node in the lake, the node's time for pushing."""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

from bench.processes import EXHUME, TICKS, BenchError
from bench.report import Row, Section
from bench.synthetic import synthetic
from exhume.fleet.batch import Batch, JoinedRows
from exhume.fleet.lake import Lake
from exhume.fleet.push import HubTarget, Pusher
from exhume.fleet.schema import SUMMARIES
from exhume.fleet.spool import Spool
from exhume.fleet.summary import Summariser, stretches
from exhume.fleet.tokens import Tokens
from exhume.store.read.index import sealed_segments
from exhume.store.read.recording import Recording

CONNECTIONS = 64
MINUTE_US = 60_000_000
# Minutes of a recording that the figures of a node are made of.
MINUTES = 60
DAY_NODES = 50


def measure(work: Path, quick: bool) -> Section:
    recording = Recording.open(synthetic(work, quick).directory)
    minutes = _minutes(recording)
    seconds = 5.0 if quick else 20.0
    one, one_rate = _hub_cost(work, minutes, 1, seconds)
    many, many_rate = _hub_cost(work, minutes, 60, seconds)
    pushing = _push_cost(work, recording)
    fleet, alone = (_bytes_a_day(work, minutes, nodes) / 1024 for nodes in (DAY_NODES, 1))
    wire = sum(len(_batch("node-1", number, minutes, 1)) for number in range(MINUTES)) / MINUTES
    return Section(
        "The fleet: hub, lake and push",
        f"""Summaries of {MINUTES} minutes of the synthetic recording. The hub runs on one core, its clients on others
        ({CONNECTIONS} connections, each the next request when the last one is answered, answered when it is synced),
        folding into the lake every two seconds is part of it. The wall time of a summary is what limits a hub whose
        nodes wait for its answers. Bytes are those of a compacted day of {DAY_NODES} nodes
        whose values differ by up to a fifth at random. The node's cost is what summarising, spooling and sending took
        of one core, a segment at a time, without the start of the process.""",
        [
            Row("hub: CPU time of a summary, one a request", one, "µs", 500.0, 100.0, f"{one_rate:,.0f} a second", 0),
            Row("hub: wall time of a summary, one a request", 1e6 / one_rate, "µs", 500.0, 100.0, digits=0),
            Row("hub: CPU time of a summary, 60 a request", many, "µs", 500.0, 100.0, f"{many_rate:,.0f} a second", 0),
            Row("lake: a node and day without incidents", fleet, "KiB", 300.0, 100.0, digits=0),
            Row("the same, with one node in the lake", alone, "KiB", digits=0),
            Row("a minute on the wire", wire, "bytes", digits=0),
            Row("node: pushing, of one core", pushing, "%", 0.1, 0.03, digits=3),
        ],
    )


def _minutes(recording: Recording) -> dict[str, list[Any]]:
    summariser, columns = Summariser(), dict[str, list[Any]]()
    for stretch in list(stretches(sealed_segments(recording.directory)))[:MINUTES]:
        found = summariser.summarise(recording, stretch)
        for name, values in (found.columns if found is not None else {}).items():
            columns.setdefault(name, []).extend(values)
    return columns


def _batch(node: str, seq: int, minutes: dict[str, list[Any]], count: int) -> bytes:
    """Minutes that follow each other; their values are those of the recording."""
    size = len(minutes["minute"])
    columns = {name: [values[(seq * count + i) % size] for i in range(count)] for name, values in minutes.items()}
    first = int(time.time()) // 60 * MINUTE_US - 30 * 86_400_000_000
    columns["minute"] = [first + (seq * count + i) * MINUTE_US % (30 * 86_400_000_000) for i in range(count)]
    return Batch(node, "0" * 16, seq, {SUMMARIES.name: columns}).encode()


def _hub_cost(work: Path, minutes: dict[str, list[Any]], count: int, seconds: float) -> tuple[float, float]:
    """Microseconds of CPU for a summary, and summaries a second."""
    place = work / "fleet-hub"
    shutil.rmtree(place, ignore_errors=True)
    tokens = Tokens(place / "state")
    nodes = {f"node-{number}": tokens.add(f"node-{number}") for number in range(CONNECTIONS)}
    cores = sorted(os.sched_getaffinity(0))
    hub = subprocess.Popen(
        [
            *(EXHUME, "fleet", "hub", "--lake", place / "lake", "--state", place / "state"),
            *("--bind", "127.0.0.1:0", "--fold-every", "2s"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert hub.stdout is not None
        port = int(hub.stdout.readline().split(" for ")[0].rpartition(":")[2])
        os.sched_setaffinity(hub.pid, cores[:1])
        os.sched_setaffinity(0, cores[1:] or cores)
        # What is sent is made before, so that the clients keep up.
        room = int(seconds * (9000 if count == 1 else 400) / CONNECTIONS)
        requests = {
            node: [_request(token, _batch(node, seq, minutes, count)) for seq in range(room)]
            for node, token in nodes.items()
        }
        before, began = _cpu(hub.pid), time.monotonic()
        accepted = asyncio.run(_send_all(port, list(requests.values()), began + seconds))
        taken = time.monotonic() - began
        # What is in the log is folded too.
        time.sleep(2.5)
        used = _cpu(hub.pid) - before
    finally:
        os.sched_setaffinity(0, cores)
        hub.send_signal(signal.SIGTERM)
        hub.wait(60)
    if not accepted:
        raise BenchError("the hub accepted nothing")
    return used / (accepted * count) * 1e6, accepted * count / taken


def _request(token: str, body: bytes) -> bytes:
    head = f"POST /v1/batches HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _send_all(port: int, queues: list[list[bytes]], until: float) -> int:
    async def client(requests: list[bytes]) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        accepted = 0
        for request in requests:
            if time.monotonic() > until:
                break
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            if answer.get("stored", 0) == 0:
                raise BenchError(f"the hub did not store a batch: {answer}")
            accepted += 1
        writer.close()
        return accepted

    return sum(await asyncio.gather(*map(client, queues)))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _push_cost(work: Path, recording: Recording) -> float:
    """Percent of one core that pushing takes, with a segment a minute and a hub on this machine."""
    place = work / "fleet-push"
    shutil.rmtree(place, ignore_errors=True)
    directory = place / "recording"
    directory.mkdir(parents=True)
    (directory / "recorder.lock").touch()
    segments = sealed_segments(recording.directory)[: MINUTES // 2]
    (directory / segments[0].path.name).symlink_to(segments[0].path)
    token = Tokens(place / "state").add(recording.facts.node)
    hub = subprocess.Popen(
        [EXHUME, "fleet", "hub", "--lake", place / "lake", "--state", place / "state", "--bind", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    spool = Spool(place / "spool")
    try:
        assert hub.stdout is not None
        url = hub.stdout.readline().split(" for ")[0].partition("at ")[2]
        pusher = Pusher(directory, spool, _AnyAge(url, token), first_ns=10**18)
        never = Event()
        # The first one warms up.
        pusher.collect(never)
        pusher.send(never)
        used, spans = 0.0, 0.0
        for segment in segments[1:]:
            (directory / segment.path.name).symlink_to(segment.path)
            began = time.process_time()
            for _ in range(12):
                # It looks every five seconds, and finds something once.
                pusher.collect(never)
            sent = pusher.send(never)
            used += time.process_time() - began
            spans += segment.name.span.seconds
            if sent.problem:
                raise BenchError(f"the hub did not take a batch: {sent.problem}")
        return 100 * used / spans
    finally:
        spool.close()
        hub.send_signal(signal.SIGTERM)
        hub.wait(60)


class _AnyAge(HubTarget):
    """A synthetic recording is of some day: its batches are sent as they are, and a hub that refuses them for their
    age has done all the work but storing them."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)

    def deliver(self, entry: Any) -> Any:
        from exhume.notify.outbox import Delivery

        delivery = super().deliver(entry)
        return Delivery(True) if delivery.code == 422 else delivery


def _bytes_a_day(work: Path, minutes: dict[str, list[Any]], nodes: int) -> float:
    place = work / "fleet-lake"
    shutil.rmtree(place, ignore_errors=True)
    lake, draw = Lake.open(str(place)), random.Random(7)
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    size = len(minutes["minute"])
    for hour in range(24):
        joined = JoinedRows(SUMMARIES)
        first = int((begin + timedelta(hours=hour)).timestamp()) * 1_000_000
        for node in range(nodes):
            chosen = [draw.randrange(size) for _ in range(60)]
            columns = {name: [_varied(draw, values[place]) for place in chosen] for name, values in minutes.items()}
            columns["minute"] = [first + number * MINUTE_US for number in range(60)]
            columns["uptime_s"] = [86_400.0 * node + 3600 * hour + 60 * number for number in range(60)]
            columns["boot_id"] = [f"{node:032x}"] * 60
            joined.add(columns, f"ip-10-0-{node >> 8}-{node & 255}", first + draw.randrange(60) * 1_000_000, None)
        lake.write(SUMMARIES, joined.to_arrow(), f"hub-{hour}")
    lake.compact(begin + timedelta(days=2))
    stored = sum(size for partition in lake.partitions(SUMMARIES) for _, size in lake.files(partition.path))
    return stored / nodes


def _varied(draw: random.Random, value: Any) -> Any:
    """Up to a fifth more or less, with as many digits."""
    if not isinstance(value, float) or not value:
        return value
    digits = len(str(value).partition(".")[2])
    return round(value * draw.uniform(0.8, 1.2), min(digits, 3))
