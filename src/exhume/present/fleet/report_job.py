"""The lake's report, computed in the background by a separate process.

A report of a large fleet takes seconds and gigabytes, more than a request handler may use. It is computed once for all
clients, and again when it is requested after it has become stale. Until the new one is ready, the old one is served.
"""

import asyncio
import ctypes
import json
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from exhume.model.isolation import isolated_environment, isolated_python
from exhume.present.fleet.schemas import FleetReportShape

PROGRAM = "exhume.present.fleet.report_program"
MAX_AGE_S = 900.0
TIMEOUT_S = 600.0
# A failed report is not retried on every request.
RETRY_S = 60.0
_MAX_REASON = 300
_CAP_DAC_READ_SEARCH, _CAPABILITY_VERSION_3 = 2, 0x20080522
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2

_log = logging.getLogger(__name__)


def without_report(state: Literal["computing", "failed"], detail: str) -> FleetReportShape:
    """The response that stands in for a report while none is available."""
    return {
        "state": state,
        "detail": detail,
        "since": None,
        "until": None,
        "nodes": 0,
        "sick": 0,
        "tried": 0,
        "separators": [],
        "common": None,
        "uptime_days": None,
        "onset": None,
        "changes": [],
        "at_risk": [],
        "at_risk_total": 0,
        "clusters": [],
        "jobs": None,
        "steps": [],
        "blind_spots": [],
    }


def _hand_on_reading() -> None:
    """Keep CAP_DAC_READ_SEARCH across execve. Runs in the child before exec: a server that was started as root kept
    this one capability, to read the lake. execve(2) drops it unless it is ambient (security/commoncap.c,
    cap_bprm_creds_from_file)."""
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # The effective, permitted and inheritable sets: first the low 32 bits of each, then the high ones.
    data = (ctypes.c_uint32 * 6)()
    kept = 1 << _CAP_DAC_READ_SEARCH
    if libc.capget(header, data) == 0 and data[1] & kept:
        data[2] |= kept
        if libc.capset(header, data) == 0:
            libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)


class ReportJob:
    """The newest report of a lake."""

    def __init__(self, lake: Path | str, program: str = PROGRAM) -> None:
        self._lake = str(lake)
        self._program = program
        self._shape = without_report("computing", "the report of the last 7 days is being computed")
        self._old_at = float("-inf")
        self._running: asyncio.Task[None] | None = None

    def newest(self) -> FleetReportShape:
        """The last report; starts computing a new one if it is stale."""
        if self._running is None and time.monotonic() >= self._old_at:
            self._running = asyncio.create_task(self._compute())
        return self._shape

    async def close(self) -> None:
        """Terminate the process that computes the report."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running

    async def _compute(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *isolated_python(self._program, self._lake),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=isolated_environment(),
            # The child runs only this between fork and exec.
            preexec_fn=_hand_on_reading,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                out, err = await process.communicate()
            if process.returncode == 0:
                self._shape, self._old_at = json.loads(out), time.monotonic() + MAX_AGE_S
                return
            lines = err.decode(errors="replace").strip().splitlines()
            reason = lines[-1][:_MAX_REASON] if lines else f"exit code {process.returncode}"
        except TimeoutError:
            reason = f"it took more than {TIMEOUT_S:.0f} s; use exhume fleet report"
        except ValueError:
            reason = "its answer was cut off"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._running = None
        _log.warning("the report of %s could not be computed: %s", self._lake, reason)
        self._shape, self._old_at = without_report("failed", reason), time.monotonic() + RETRY_S
