"""The hub: receives batches from nodes over HTTP, and is the only one that needs write access to the lake.

Acknowledged batches are on its disk: they are appended to a log, many requests share one fdatasync, and only then are
they answered. The log is periodically folded into files of the lake, whose names are derived from the log's. So
folding again after a kill replaces the same files, and data that was compacted meanwhile is recognised.

Each node numbers its batches. The hub remembers the last number of each node, so a batch that is retried because the
response was lost is acknowledged but not stored again. The hub only responds to nodes; it cannot send them commands.
"""

import asyncio
import errno
import fcntl
import json
import logging
import os
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from exhume.fleet.batch import (
    MAX_BODY_BYTES,
    BadBatch,
    BadVersion,
    Batch,
    JoinedRows,
    TooLarge,
    decode,
    digest_of,
)
from exhume.fleet.lake import DAY_US, HOUR_US, HUB, OF_HUB, Lake, LakeError, bundle_path
from exhume.fleet.push import BATCHES, BUNDLES, MAX_BUNDLE_BYTES, SENT_AT_HEADER
from exhume.fleet.schema import CLOCK_OFF_S, INCIDENTS, TABLES
from exhume.fleet.tokens import Tokens
from exhume.model.errors import ExhumeError, RecordingError, UsageError, os_reason
from exhume.model.ownership import PRIVATE_DIRECTORY
from exhume.notify.limits import TokenBucket
from exhume.store.read.bundle import check_bundle

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FOLD_S, FOLD_BYTES = 30.0, 64 << 20
# Maximum size of logs while the lake is unavailable; beyond that, nodes keep their batches.
MAX_LOG_BYTES = 4 << 30
# Rate limit of requests per node: a node sends one a minute, and a backlog in one go.
REQUESTS_AT_ONCE, REQUEST_EVERY_S = 2000, 0.1
BUNDLES_AT_ONCE, BUNDLE_EVERY_S = 50, 300.0
# Each fold writes one file per partition that it has rows for. The current partitions are shared by all nodes;
# partitions of other hours or days are rate-limited by node, for every batch: two months of them at once, then one
# every 30 s.
LATE_AT_ONCE, LATE_EVERY_S = 2000, 30.0
# Limit on MiB per node in the log, where rows are not compressed: a thousand times what a node sends.
MIB_AT_ONCE, MIB_EVERY_S = 256, 30.0
# A batch larger than this when unpacked is decoded in a thread, one at a time. Minutes never are; of inventories, the
# first may be.
INLINE_BYTES = 1 << 20
LARGE_AT_ONCE, LARGE_EVERY_S = 20, 60.0
MOST_PENDING_BYTES = 64 << 20
# Long enough for a bundle over a slow connection.
BODY_TIMEOUT_S = 60.0
RETRY_AFTER_S = 30
# With a clock that is further off, rows would be in partitions that no reader looks at and that retention never
# reaches.
MAX_CLOCK_OFF_S = 30 * 86_400.0
MOST_AHEAD_S, MOST_BEHIND_S = 86_400.0, 60 * 86_400.0
_MOST_SPOOLS = 4
_STATE, _LOGS, _INCOMING = "state.json", "log", "incoming"
_LOG_SUFFIX = ".jsonl"
_VERSION = 1


class Refused(Exception):
    """A request that is refused: the HTTP status, and a sentence for the sender."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Log:
    """The write-ahead log of one hub: lines of `CRC-32 JSON`, in numbered files. A truncated line was never
    acknowledged."""

    def __init__(self, directory: Path, after: int = 0) -> None:
        """Open the log. Files are numbered from `after` on: files of the lake have the numbers in their names."""
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        self._directory = directory
        self._number = max([after, *(number for number, _ in self.files())])
        self._fd = -1
        self.size = 0
        self.rotate()

    def files(self) -> list[tuple[int, Path]]:
        found = [(int(path.stem), path) for path in self._directory.glob("*" + _LOG_SUFFIX) if path.stem.isdigit()]
        return sorted(found)

    def closed(self) -> list[tuple[int, Path]]:
        """The files that are no longer appended to."""
        return [(number, path) for number, path in self.files() if number < self._number]

    def append(self, lines: list[bytes]) -> None:
        """Append lines durably. Raises OSError, leaving the file as it was before."""
        content = b"".join(lines)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(self._fd, view) :]
            os.fdatasync(self._fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, self.size)
            # After a failed sync the kernel may have dropped written pages: nothing more goes into this file.
            with suppress(OSError):
                self.rotate()
            raise
        self.size += len(content)

    def rotate(self) -> None:
        """Start the next file. Raises OSError."""
        number = self._number + 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(self._directory / f"{number:012d}{_LOG_SUFFIX}", flags, 0o600)
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self.close()
        self._fd, self._number, self.size = fd, number, 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# Made once: json.dumps with separators makes an encoder for each call.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def line_of(record: dict[str, Any]) -> bytes:
    text = _encode(record).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a log file, up to the first damaged one."""
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n") or line[8:9] != b" ":
                return
            text = line[9:-1]
            if b"%08x" % zlib.crc32(text) != line[:8]:
                return
            yield json.loads(text)


@dataclass(slots=True)
class Marks:
    """The last sequence number of each spool of each node, and the digest of that batch."""

    of: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)

    def last(self, node: str, spool: str) -> tuple[int, str]:
        return self.of.get(node, {}).get(spool, (-1, ""))

    def set(self, node: str, spool: str, seq: int, digest: str) -> None:
        spools = self.of.setdefault(node, {})
        # Reinserted, so that the newest comes last.
        spools.pop(spool, None)
        spools[spool] = seq, digest
        while len(spools) > _MOST_SPOOLS:
            del spools[next(iter(spools))]

    def update(self, other: "Marks") -> None:
        for node, spools in other.of.items():
            for spool, (seq, digest) in spools.items():
                self.set(node, spool, seq, digest)

    def take(self, record: dict[str, Any]) -> None:
        self.set(record["node"], record["spool"], record["seq"], record["digest"])


@dataclass(slots=True)
class _Pending:
    """A batch that waits for its commit to the log."""

    batch: Batch
    digest: str
    line: bytes
    done: "asyncio.Future[None]"


@dataclass(slots=True)
class Counts:
    """Statistics since the hub started."""

    batches: int = 0
    rows: int = 0
    duplicates: int = 0
    refused: int = 0
    commits: int = 0
    folded: int = 0


class Hub:
    """Receives batches and bundles into a lake. `state` is a directory of its own on a disk that honours fsync. Raises
    ExhumeError if another hub uses it."""

    def __init__(self, lake: Lake, state: Path, *, fold_s: float = FOLD_S) -> None:
        self.lake, self.state, self.fold_s = lake, state, fold_s
        self.marks, self._folded, self._folded_number = Marks(), Marks(), 0
        try:
            state.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            self._lock = os.open(state / "hub.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._id = self._load_state()
            self._log = Log(state / _LOGS, self._folded_number)
            (state / _INCOMING).mkdir(exist_ok=True)
            for left in (state / _INCOMING).iterdir():
                left.unlink()
            for _, path in self._log.closed():
                for record in records_in(path):
                    self.marks.take(record)
        except BlockingIOError:
            raise ExhumeError(f"another hub uses {state}; end it, or name another directory with --state") from None
        except OSError as error:
            raise ExhumeError(f"{state} can't be used: {os_reason(error)}; see --state") from error
        self.tokens = Tokens(state)
        self.counts = Counts()
        self._pending: list[_Pending] = []
        self._pending_bytes = self._unfolded_bytes = 0
        self._in_flight: dict[tuple[str, str], _Pending] = {}
        self._wake = asyncio.Event()
        self._large = asyncio.Lock()
        self._limits: dict[tuple[str, str], TokenBucket] = {}
        # One thread each: appends and rotations stay in order, and folding does not delay them.
        self._writer = ThreadPoolExecutor(1, "hub-log")
        self._folder = ThreadPoolExecutor(1, "hub-fold")
        self._folding: asyncio.Task[None] | None = None

    # Requests.

    def identify(self, authorization: str) -> str:
        """The node that a request is from. Raises Refused."""
        scheme, _, token = authorization.partition(" ")
        try:
            node = self.tokens.node_of(token.strip()) if scheme.lower() == "bearer" and token else None
        except ExhumeError as error:
            _log.error("%s", error)
            raise Refused(503, "the tokens of this hub can't be read; try again later") from None
        if node is None:
            raise Refused(401, "the token is missing, not valid or revoked; see exhume fleet token add")
        return node

    def admit(self, node: str, what: str, at_once: int, every_s: float, amount: float = 1.0) -> None:
        """Enforce a rate limit. Raises Refused for a node that sends too much."""
        bucket = self._limits.get((node, what))
        if bucket is None:
            bucket = self._limits[node, what] = TokenBucket(at_once, every_s)
        if not bucket.take(time.monotonic(), amount):
            raise Refused(429, f"too many {what} of this node; send fewer, or later")

    async def take(self, node: str, body: bytes, sent_us: int | None) -> dict[str, Any]:
        """Store a batch; returns the response once it is durable. Raises Refused."""
        try:
            batch = await self._decode(node, body)
        except BadVersion as error:
            raise Refused(426, str(error)) from None
        except BadBatch as error:
            raise Refused(422 if body[:2] == b"\x1f\x8b" else 400, str(error)) from None
        if batch.node != node:
            raise Refused(403, f"this token is that of {node}: it can't write rows of another node")
        _check_bundles(batch)
        now = time.time()
        off = None if sent_us is None else sent_us / 1e6 - now
        _check_times(batch, now + (off or 0.0), off)
        digest = digest_of(body)
        key = node, batch.spool
        flying = self._in_flight.get(key)
        if flying is not None and flying.batch.seq == batch.seq and flying.digest == digest:
            await asyncio.shield(flying.done)
            return self._duplicate(batch)
        seq, known = self.marks.last(*key) if flying is None else (flying.batch.seq, flying.digest)
        if batch.seq == seq and digest == known:
            return self._duplicate(batch)
        if batch.seq <= seq:
            raise Refused(409, f"batch {batch.seq} of this spool came before, with other rows; number it again")
        if self._pending_bytes > MOST_PENDING_BYTES:
            raise Refused(503, "more batches wait than the disk takes; try again later")
        if self._unfolded_bytes > MAX_LOG_BYTES:
            raise Refused(507, "the lake takes nothing, and the hub holds as much as it may; try again later")
        off_s = round(off, 1) if off is not None and abs(off) > CLOCK_OFF_S else None
        if late := _late_partitions(batch, now):
            self.admit(node, "rows of other hours", LATE_AT_ONCE, LATE_EVERY_S, late)
        pending = self._enqueue(batch, digest, int(now), off_s)
        await asyncio.shield(pending.done)
        answer: dict[str, Any] = {"stored": batch.rows, "duplicate": False}
        if batch.ignored:
            answer["ignored"] = sorted(set(batch.ignored))[:20]
        if off_s is not None:
            answer["clock_off_s"] = off_s
        return answer

    async def _decode(self, node: str, body: bytes) -> Batch:
        """Decode a batch. Raises BadBatch, Refused."""
        try:
            return decode(body, INLINE_BYTES)
        except TooLarge:
            # One at a time, in a thread: a large batch must neither block other requests nor multiply the memory use.
            self.admit(node, "large batches", LARGE_AT_ONCE, LARGE_EVERY_S)
            async with self._large:
                return await asyncio.to_thread(decode, body)

    async def take_bundle(self, node: str, incident: str, place: Path) -> dict[str, Any]:
        """Store a bundle that was received as a file. Raises Refused."""
        path = bundle_path(node, incident)
        try:
            if await asyncio.to_thread(self.lake.has, path):
                return {"stored": 0, "duplicate": True}
            await asyncio.to_thread(check_bundle, place)
            await asyncio.to_thread(self.lake.put, path, place)
        except RecordingError as error:
            raise Refused(422, str(error).replace(str(place), "the bundle")) from None
        except LakeError as error:
            raise Refused(507 if error.full else 503, str(error)) from None
        return {"stored": 1, "duplicate": False}

    def _duplicate(self, batch: Batch) -> dict[str, Any]:
        self.counts.duplicates += 1
        return {"stored": 0, "duplicate": True, "seq": batch.seq}

    def _enqueue(self, batch: Batch, digest: str, received: int, off_s: float | None) -> _Pending:
        record = {
            "node": batch.node,
            "spool": batch.spool,
            "seq": batch.seq,
            "digest": digest,
            "received": received,
            "off": off_s,
            "tables": batch.tables,
        }
        line = line_of(record)
        self.admit(batch.node, "MiB of rows", MIB_AT_ONCE, MIB_EVERY_S, len(line) / (1 << 20))
        pending = _Pending(batch, digest, line, asyncio.get_running_loop().create_future())
        self._pending.append(pending)
        self._pending_bytes += len(pending.line)
        self._in_flight[batch.node, batch.spool] = pending
        self._wake.set()
        return pending

    # The log and the lake.

    async def commit_forever(self) -> None:
        """Group commit: write all pending batches with one sync; while the disk is busy, more of them accumulate."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                taken, self._pending, self._pending_bytes = self._pending, [], 0
                failure: Refused | None = None
                try:
                    await loop.run_in_executor(self._writer, self._log.append, [each.line for each in taken])
                except OSError as error:
                    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
                    reason = "its disk is full" if full else os_reason(error)
                    failure = Refused(507 if full else 503, f"the hub can't store batches: {reason}; try again later")
                    _log.error("the log can't be written: %s", reason)
                for each in taken:
                    self._settle(each, failure)
                self.counts.commits += failure is None

    def _settle(self, pending: _Pending, failure: Refused | None) -> None:
        batch = pending.batch
        if self._in_flight.get((batch.node, batch.spool)) is pending:
            del self._in_flight[batch.node, batch.spool]
        if failure is None:
            self.marks.set(batch.node, batch.spool, batch.seq, pending.digest)
            self.counts.batches += 1
            self.counts.rows += batch.rows
        if pending.done.done():
            return
        if failure is None:
            pending.done.set_result(None)
        else:
            pending.done.set_exception(failure)

    async def fold_forever(self) -> None:
        """Fold the log into the lake periodically, and when it is large."""
        waited = 0.0
        while True:
            await asyncio.sleep(min(1.0, self.fold_s))
            waited += min(1.0, self.fold_s)
            if waited >= self.fold_s or self._log.size >= FOLD_BYTES:
                waited = 0.0
                await self.fold()

    async def fold(self) -> None:
        """Fold everything that is logged now."""
        loop = asyncio.get_running_loop()
        try:
            if self._log.size:
                await loop.run_in_executor(self._writer, self._log.rotate)
            await loop.run_in_executor(self._folder, self._fold_closed)
        except (LakeError, OSError) as error:
            _log.warning("the log is not folded into the lake yet: %s", error)

    def _fold_closed(self) -> None:
        closed = self._log.closed()
        self._unfolded_bytes = sum(path.stat().st_size for _, path in closed)
        for number, path in closed:
            rows = self._fold_file(number, path)
            self._folded_number = number
            self._save_state()
            self._unfolded_bytes -= path.stat().st_size
            path.unlink()
            self.counts.folded += rows

    def _fold_file(self, number: int, path: Path) -> int:
        """Write the rows of one log file to the lake; returns their number."""
        united = {name: JoinedRows(table) for name, table in TABLES.items()}
        newest = Marks()
        for record in records_in(path):
            # A batch whose sync failed may still be in the log, and was sent again.
            key = record["node"], record["spool"]
            if record["seq"] <= max(self._folded.last(*key)[0], newest.last(*key)[0]):
                continue
            for name, columns in record["tables"].items():
                united[name].add(columns, record["node"], record["received"] * 1_000_000, record["off"])
            newest.take(record)
        rows = 0
        for name, joined in united.items():
            if joined.rows:
                self.lake.write_new(TABLES[name], joined.to_arrow(), f"{OF_HUB}{self._id}-{number:012d}")
                rows += joined.rows
        # Only after the write to the lake: if that fails, the rows are folded again.
        self._folded.update(newest)
        return rows

    def _load_state(self) -> str:
        """Load the hub's state: returns its id, and sets the marks of folded batches."""
        path = self.state / _STATE
        try:
            found = json.loads(path.read_text())
            for node, spools in found["marks"].items():
                for spool, (seq, digest) in spools.items():
                    self.marks.set(node, spool, seq, digest)
                    self._folded.set(node, spool, seq, digest)
            self._folded_number = int(found["log"])
            return str(found["id"])
        except FileNotFoundError:
            hub = uuid.uuid4().hex[:12]
            self._save_state(hub)
            return hub
        except (ValueError, KeyError, TypeError) as error:
            raise ExhumeError(
                f"{path} is damaged: {error}; restore it, or remove it to accept batches twice"
            ) from error

    def _save_state(self, hub: str | None = None) -> None:
        known = {"version": _VERSION, "id": hub or self._id, "log": self._folded_number, "marks": self._folded.of}
        staged = (self.state / _STATE).with_suffix(".new")
        with staged.open("w") as file:
            json.dump(known, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        staged.replace(self.state / _STATE)

    @asynccontextmanager
    async def running(self, _: Any = None) -> AsyncIterator[None]:
        """The lifetime of the hub: batches are accepted while it is active. What was logged before a crash is folded
        first."""
        await self.fold()
        tasks = [asyncio.create_task(each) for each in (self.commit_forever(), self.fold_forever())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            try:
                await self.fold()
            finally:
                self._writer.shutdown()
                self._folder.shutdown()
                self._log.close()
                os.close(self._lock)


def default_state(lake: Lake) -> Path:
    """The default location of the log and the tokens for a lake in a directory. Raises UsageError for an object
    store."""
    if lake.directory is None:
        raise UsageError("a hub in front of an object store needs a directory of its own: name it with --state")
    return lake.directory / HUB


def _check_bundles(batch: Batch) -> None:
    """Raises Refused for an incident that refers to another node's bundle: the page would show that node's data."""
    rows = batch.tables.get(INCIDENTS.name, {})
    for incident, bundle in zip(rows.get("id", ()), rows.get("bundle", ()), strict=False):
        if bundle is not None and bundle != bundle_path(batch.node, incident):
            raise Refused(403, f"the bundle of an incident of {batch.node} is another one's")


def _late_partitions(batch: Batch, now: float) -> int:
    """The partitions that a batch has rows for, except those around the current time by the hub's clock: a node's own
    clock is untrusted."""
    late = 0
    for name, columns in batch.tables.items():
        table = TABLES[name]
        unit = HOUR_US if table.hourly else DAY_US
        newest = int(now * 1e6) // unit
        late += len({each // unit for each in columns[table.time]} - {newest - 1, newest, newest + 1})
    return late


def _check_times(batch: Batch, node_now: float, off: float | None) -> None:
    """Raises Refused for rows that are not recent by the node's own clock, or if that clock is far off."""
    if off is not None and abs(off) > MAX_CLOCK_OFF_S:
        raise Refused(422, f"the clock of this node is off by {abs(off) / 86_400:.0f} days; set it")
    least, most = (node_now - MOST_BEHIND_S) * 1e6, (node_now + MOST_AHEAD_S) * 1e6
    for name, columns in batch.tables.items():
        times = columns[TABLES[name].time]
        if times and not (least <= min(times) and max(times) <= most):
            raise Refused(422, f"{name} has rows that are not of the last {MOST_BEHIND_S / 86_400:.0f} days")


class _Endpoint:
    """An ASGI application that responds with JSON. Starlette's Request is avoided: it would take most of a hub's
    time."""

    def __init__(self, answer: Callable[[Scope, Receive], Awaitable[dict[str, Any]]], hub: Hub) -> None:
        self._answer, self._hub = answer, hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json")]
        try:
            status, content = 200, await self._answer(scope, receive)
        except Refused as refusal:
            self._hub.counts.refused += 1
            status, content = refusal.status, {"error": str(refusal)}
            if status in (429, 503, 507):
                headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
            if status == 413:
                # The rest of the request body is not read.
                headers.append((b"connection", b"close"))
        body = json.dumps(content).encode()
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class _App(Starlette):
    """Dispatches batches, nearly all requests of a hub, past Starlette's middleware and routes."""

    batches: _Endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == BATCHES and scope["method"] == "POST":
            await self.batches(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(hub: Hub) -> Starlette:
    """The HTTP interface of a hub: two endpoints that receive data, and a health check."""

    async def batches(scope: Scope, receive: Receive) -> dict[str, Any]:
        headers = dict(scope["headers"])
        node = hub.identify(headers.get(b"authorization", b"").decode("latin-1"))
        hub.admit(node, "batches", REQUESTS_AT_ONCE, REQUEST_EVERY_S)
        body = b"".join([piece async for piece in _body(headers, receive, MAX_BODY_BYTES)])
        sent = headers.get(SENT_AT_HEADER.lower().encode(), b"")
        return await hub.take(node, body, int(sent) if sent.isdigit() and len(sent) < 18 else None)

    async def bundles(scope: Scope, receive: Receive) -> dict[str, Any]:
        headers = dict(scope["headers"])
        node = hub.identify(headers.get(b"authorization", b"").decode("latin-1"))
        incident = scope["path_params"]["incident"]
        if not (len(incident) == 16 and all(each in "0123456789abcdef" for each in incident)):
            raise Refused(422, "the id of an incident has 16 hexadecimal digits")
        hub.admit(node, "bundles", BUNDLES_AT_ONCE, BUNDLE_EVERY_S)
        place = hub.state / _INCOMING / uuid.uuid4().hex
        try:
            with place.open("xb") as file:
                async for piece in _body(headers, receive, MAX_BUNDLE_BYTES):
                    file.write(piece)
            return await hub.take_bundle(node, incident, place)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            raise Refused(507 if full else 503, "the hub can't store the bundle; try again later") from None
        finally:
            place.unlink(missing_ok=True)

    def health(_: Any) -> Response:
        return JSONResponse({"status": "ok"})

    endpoint = _Endpoint(batches, hub)
    app = _App(
        routes=[
            Route(BATCHES, endpoint, methods=["POST"]),
            Route(BUNDLES + "/{incident}", _Endpoint(bundles, hub), methods=["POST"]),
            Route("/v1/health", health, methods=["GET"]),
        ],
        lifespan=hub.running,
    )
    app.batches = endpoint
    return app


async def _body(headers: dict[bytes, bytes], receive: Receive, most: int) -> AsyncIterator[bytes]:
    """The chunks of a request body; the server bounds how long it takes. Raises Refused if it is too large."""
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:18]) > most:
        raise Refused(413, f"at most {most >> 20} MiB are taken at once")
    taken = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "the request was cut off")
        piece = message.get("body", b"")
        taken += len(piece)
        if taken > most:
            raise Refused(413, f"at most {most >> 20} MiB are taken at once")
        if piece:
            yield piece
        if not message.get("more_body", False):
            return
