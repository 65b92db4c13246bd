"""Each core's network receive backlog: packets taken, dropped, and the times its budget ran out (squeezed)."""

import numpy as np
from numpy.typing import NDArray

from exhume.collect.counters import steps_of_u32
from exhume.collect.cpulist import online_cpus
from exhume.collect.host import Host, ProcFile
from exhume.collect.source import NOTHING, TickRows
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable

_CPU_COLUMN = 12


class SoftnetSource:
    """Rows of the softnet table, for the cores on which something moved."""

    name = "softnet"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._file = ProcFile(host.proc / "net/softnet_stat")
        self._content = b""
        self._before: dict[int, NDArray[np.int64]] = {}
        if self._file.read_or_none() is None:
            raise SourceUnavailable(
                self.name, f"{self._file.path} can't be read", "run a kernel with CONFIG_PROC_FS and networking"
            )

    def read(self, tick: Tick) -> TickRows:
        content = self._file.read_or_none()
        if content is None:
            self._before = {}
            return NOTHING
        if content == self._content and self._before:
            return NOTHING
        self._content = content
        now = self._counts(content)
        before, self._before = self._before, now
        rows = []
        for cpu, counts in now.items():
            if cpu in before:
                moved = steps_of_u32(counts, before[cpu])
                if moved.any() and (moved >= 0).all():
                    rows.append((cpu, *moved.tolist()))
        if not rows:
            return NOTHING
        columns = dict(zip(("cpu", "processed", "dropped", "squeezed"), zip(*rows, strict=True), strict=True))
        return {"softnet": {"time": [tick.start] * len(rows), **{name: list(v) for name, v in columns.items()}}}

    def _counts(self, content: bytes) -> dict[int, NDArray[np.int64]]:
        lines = [line.split() for line in content.splitlines() if line]
        if lines and len(lines[0]) > _CPU_COLUMN:
            cpus = [int(fields[_CPU_COLUMN], 16) for fields in lines]
        else:
            # Older kernels print a line for each core that is online and leave it to the reader to know which.
            cpus = online_cpus(self._host) or []
            if len(cpus) != len(lines):
                return {}
        return {
            cpu: np.array([int(field, 16) for field in fields[:3]], np.int64)
            for cpu, fields in zip(cpus, lines, strict=True)
        }

    def close(self) -> None:
        self._file.close()
