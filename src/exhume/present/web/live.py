"""What the server follows by itself: the growing recording, as server-sent events, and incidents and their causes."""

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
# So that a client that went away is noticed, and no proxy closes the connection.
HEARTBEAT_S = 15.0
# The first view goes first.
FIRST_LOOK_S = 3.0
LOOK_EVERY_S = 2.0
# Diagnoses that are kept; older ones are computed again on request.
_MAX_BODIES = 100


class LiveStatus:
    """The status of the recording, read once a second for all clients."""

    def __init__(self, pool: JobPool) -> None:
        self._pool = pool
        self._lock = asyncio.Lock()
        self._json = ""
        self._read_at = float("-inf")
        #: Set when the server ends, so that browsers see the end of the stream and no error.
        self.stopping = False

    def stop(self) -> None:
        """End the streams of all clients."""
        self.stopping = True

    async def json(self) -> str:
        """The newest status."""
        async with self._lock:
            # A little less than a second, so that clients that come each second don't get every other one twice.
            if time.monotonic() - self._read_at >= 0.9 * EVERY_S:
                status = await self._pool.submit("recording.status", QueryParams()).result
                if not isinstance(status, Reply):
                    self._json = json.dumps(status, separators=(",", ":"))
                self._read_at = time.monotonic()
            return self._json

    async def events(self, request: Request) -> AsyncIterator[str]:
        """An event whenever the status changes."""
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
    """Diagnoses incidents of a recording in the background, the newest first, before a client asks for them."""

    def __init__(self, pool: JobPool, which: Which = "this") -> None:
        self._pool = pool
        self._recording = RecordingParams(recording=which)
        #: By incident id: the number of marks that were diagnosed, and the result.
        self._explained: dict[str, tuple[int, Mapping[str, Any]]] = {}
        self._bodies: OrderedDict[str, tuple[int, bytes]] = OrderedDict()

    async def run(self) -> None:
        """Look for new incidents until cancelled, and in the served recording for damaged files of new segments."""
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
        """Every marked incident, with its cause where that is known, and the parameters of its diagnosis; none where
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
        """The incident of this id."""
        return next((each for each in await self.incidents() if each[0]["id"] == name), None)

    def diagnosis(self, incident: IncidentShape) -> bytes | None:
        """The diagnosis as JSON; None while it waits, or where it is not kept any more."""
        marks, body = self._bodies.get(incident["id"], (0, b""))
        return body if marks == incident["marks"] else None

    async def _explain(self, incident: IncidentShape, moment: MomentParams) -> None:
        found = await self._pool.submit_background("diagnosis.explain", moment).result
        # One that was refused is not tried again until more is marked.
        finding, body = ({}, b"") if found is None or isinstance(found, Reply) else found
        self._explained[incident["id"]] = incident["marks"], finding
        if body:
            self._bodies[incident["id"]] = incident["marks"], body
            while len(self._bodies) > _MAX_BODIES:
                self._bodies.popitem(last=False)
