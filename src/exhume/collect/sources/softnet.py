"""Each core's network receive backlog: packets taken, dropped, and the times its budget ran out (squeezed)."""

from exhume.collect.source import NOTHING, TickRows
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.counters import step_of_u32
from exhume.procfs.cpulist import online_cpus
from exhume.procfs.host import Host, ProcFile

_CPU_COLUMN = 12
_COLUMNS = ("cpu", "processed", "dropped", "squeezed")

Lines = dict[int, list[bytes]]


class SoftnetSource:
    """Rows of the softnet table, for the cores on which something moved."""

    name = "softnet"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._file = ProcFile(host.proc / "net/softnet_stat")
        self._content = b""
        self._before: Lines = {}
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
        now = self._lines(content)
        before, self._before = self._before, now
        rows = [(cpu, *_steps(fields, before[cpu])) for cpu, fields in now.items() if cpu in before]
        rows = [row for row in rows if any(row[1:]) and min(row[1:]) >= 0]
        if not rows:
            return NOTHING
        columns = dict(zip(_COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
        return {"softnet": {"time": [tick.start] * len(rows), **columns}}

    def _lines(self, content: bytes) -> Lines:
        lines = [line.split() for line in content.splitlines() if line]
        if lines and len(lines[0]) > _CPU_COLUMN:
            return {int(fields[_CPU_COLUMN], 16): fields[:3] for fields in lines}
        # Older kernels print a line for each core that is online and leave it to the reader to know which.
        cpus = online_cpus(self._host) or []
        if len(cpus) != len(lines):
            return {}
        return {cpu: fields[:3] for cpu, fields in zip(cpus, lines, strict=True)}

    def close(self) -> None:
        self._file.close()


def _steps(now: list[bytes], before: list[bytes]) -> list[int]:
    if now == before:
        return [0, 0, 0]
    return [step_of_u32(int(new, 16), int(old, 16)) for new, old in zip(now, before, strict=True)]
