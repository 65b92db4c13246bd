"""What the server process follows by itself: the growing recording, sent as server-sent events, and incidents and
causes."""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.requests import Request

from exhume.present.web.params import FilesParams, MomentParams, QueryParams, RecordingParams, Which
from exhume.present.web.pool import Cancelled, Job, JobPool
from exhume.present.web.schemas import IncidentShape, Reply

EVERY_S = 1.0
# Detects clients that disconnected, and keeps proxies from closing the connection.
HEARTBEAT_S = 15.0
# Wait until the first view is served.
FIRST_LOOK_S = 3.0
LOOK_EVERY_S = 2.0
# Diagnoses kept in memory; older ones are recomputed on request.
_MAX_BODIES = 100


class LiveStatus:
    """The status of the recording, read once a second for all clients."""

    def __init__(self, pool: JobPool) -> None:
        self._pool = pool
        self._lock = asyncio.Lock()
        self._json = ""
        self._read_at = float("-inf")
        #: Set on shutdown, so that browsers see the regular end of the stream and no error.
        self.stopping = False

    def stop(self) -> None:
        """End the streams of all clients."""
        self.stopping = True

    async def json(self) -> str:
        """The newest status."""
        async with self._lock:
            # Slightly less than a second, so that a client that polls every second does not get every other status
            # twice.
            if time.monotonic() - self._read_at >= 0.9 * EVERY_S:
                status = await self._pool.submit("recording.status", QueryParams()).result
                if not isinstance(status, Reply):
                    self._json = json.dumps(status, separators=(",", ":"))
                self._read_at = time.monotonic()
            return self._json

    async def events(self, request: Request) -> AsyncIterator[str]:
        """Send an event whenever the status changes."""
        last, quiet_s = "", 0.0
        while not self.stopping and not await request.is_disconnected():
            try:
                now = await self.json()
            except Cancelled:
                return
            if now != last:
                last, quiet_s = now, 0.0
                yield f"data: {now}\n\n"
            elif quiet_s >= HEARTBEAT_S:
                quiet_s = 0.0
                yield ": heartbeat\n\n"
            quiet_s += EVERY_S
            await asyncio.sleep(EVERY_S)


class IncidentTracker:
    """Diagnoses incidents of a recording in the background, newest first, before a client requests them."""

    def __init__(self, pool: JobPool, which: Which = "this") -> None:
        self._pool = pool
        self._recording = RecordingParams(recording=which)
        #: By incident id: the number of marks at the time of the diagnosis, and its result.
        self._explained: dict[str, tuple[int, Mapping[str, Any]]] = {}
        self._bodies: OrderedDict[str, tuple[int, bytes]] = OrderedDict()

    async def run(self) -> None:
        """Look for new incidents until cancelled; in the served recording, also check new segments for damage."""
        await asyncio.sleep(FIRST_LOOK_S)
        checked, more = "", False
        while True:
            for shape, moment in reversed(await self._incidents(self._pool.submit_background)):
                if shape["state"] == "waiting":
                    await self._explain(shape, moment)
            if self._recording.recording == "this":
                found = await self._pool.submit_background("recording.check_files", FilesParams(after=checked)).result
                checked, more = (checked, False) if isinstance(found, Reply) else found
            await asyncio.sleep(0.1 if more else LOOK_EVERY_S)

    async def incidents(self) -> list[tuple[IncidentShape, MomentParams]]:
        """Every marked incident, with its cause if known, and the parameters for requesting its diagnosis; empty if
        there is no recording."""
        return await self._incidents(self._pool.submit)

    async def _incidents(self, submit: Callable[[str, QueryParams], Job]) -> list[tuple[IncidentShape, MomentParams]]:
        found = await submit("diagnosis.incidents", self._recording).result
        if isinstance(found, Reply):
            return []
        for shape, _ in found:
            marks, finding = self._explained.get(shape["id"], (0, {}))
            if marks == shape["marks"]:
                shape |= {**finding, "state": "known" if finding else "unknown"}
        return list(found)

    async def incident(self, name: str) -> tuple[IncidentShape, MomentParams] | None:
        """The incident with this id."""
        return next((each for each in await self.incidents() if each[0]["id"] == name), None)

    def diagnosis(self, incident: IncidentShape) -> bytes | None:
        """The diagnosis as JSON; None while it is pending, or if it was evicted."""
        marks, body = self._bodies.get(incident["id"], (0, b""))
        return body if marks == incident["marks"] else None

    async def _explain(self, incident: IncidentShape, moment: MomentParams) -> None:
        found = await self._pool.submit_background("diagnosis.explain", moment).result
        # A refused diagnosis is not retried until the incident has more marks.
        finding, body = ({}, b"") if found is None or isinstance(found, Reply) else found
        self._explained[incident["id"]] = incident["marks"], finding
        if body:
            self._bodies[incident["id"]] = incident["marks"], body
            while len(self._bodies) > _MAX_BODIES:
                self._bodies.popitem(last=False)
