"""Incidents and their causes: diagnosed in the background, the newest first, before a client asks for them."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from exhume.present.web.params import FilesParams, NoParams
from exhume.present.web.reply import Incident, Reply
from exhume.present.web.workers import JobPool

# The first view goes first.
FIRST_LOOK_S = 3.0
LOOK_EVERY_S = 2.0
# Diagnoses that are kept; older ones are computed again on request.
_MAX_BODIES = 100


class IncidentTracker:
    """Diagnoses one incident after the other, and keeps the results."""

    def __init__(self, pool: JobPool) -> None:
        self._pool = pool
        #: By incident id: the number of marks that were diagnosed, and the result.
        self._explained: OrderedDict[str, tuple[int, Mapping[str, Any]]] = OrderedDict()
        self._bodies: OrderedDict[str, tuple[int, bytes]] = OrderedDict()

    async def run(self) -> None:
        """Look for new incidents, and for damaged files of new segments, until cancelled."""
        await asyncio.sleep(FIRST_LOOK_S)
        checked, more = "", True
        while True:
            for incident in reversed(await self.incidents()):
                if incident.shape.state == "waiting":
                    await self._explain(incident)
            found = await self._pool.submit("recording.check_files", FilesParams(after=checked), long=True).result
            checked, more = (checked, False) if isinstance(found, Reply) else found
            await asyncio.sleep(0.1 if more else LOOK_EVERY_S)

    async def incidents(self) -> list[Incident]:
        """Every marked incident, with its cause where that is known; none where there is no recording."""
        found = await self._pool.submit("diagnosis.incidents", NoParams()).result
        return [] if isinstance(found, Reply) else [self._with_cause(incident) for incident in found]

    async def incident(self, name: str) -> Incident | None:
        """The incident of this id."""
        return next((each for each in await self.incidents() if each.shape.id == name), None)

    def diagnosis(self, incident: Incident) -> bytes | None:
        """The diagnosis as JSON; None while it waits, or where it is not kept any more."""
        marks, body = self._bodies.get(incident.shape.id, (0, b""))
        return body if marks == incident.shape.marks else None

    async def _explain(self, incident: Incident) -> None:
        found = await self._pool.submit("diagnosis.explain", incident.moment, long=True).result
        name, marks = incident.shape.id, incident.shape.marks
        # One that was refused is not tried again until more is marked.
        explanation = None if isinstance(found, Reply) else found
        self._explained[name] = marks, explanation.finding if explanation else {}
        if explanation:
            self._bodies[name] = marks, explanation.body
            while len(self._bodies) > _MAX_BODIES:
                self._bodies.popitem(last=False)

    def _with_cause(self, incident: Incident) -> Incident:
        marks, finding = self._explained.get(incident.shape.id, (0, {}))
        if marks != incident.shape.marks:
            return incident
        state = "known" if finding else "unknown"
        return Incident(incident.shape.model_copy(update={**finding, "state": state}), incident.moment)
