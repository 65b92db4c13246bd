"""Each core's network receive backlog: packets processed and dropped, and how often net_rx_action (net/core/dev.c) ran
out of budget with work left (squeezed)."""

from exhume.collect.source import NOTHING, TickRows, table_rows
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.counters import step_of_u32
from exhume.procfs.cpulist import online_cpus
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.softnet_stat import Softnet, parse_softnet_stat

_COLUMNS = ("time", "cpu", "processed", "dropped", "squeezed")

Lines = dict[int, Softnet]


class SoftnetSource:
    """Rows of the softnet table, for the cores whose counters changed."""

    name = "softnet"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._file = ProcFile(host.proc / "net/softnet_stat")
        self._content = b""
        self._before: Lines = {}
        if self._file.read_or_none() is None:
            remedy = "run a kernel with CONFIG_PROC_FS and networking"
            raise SourceUnavailable(self.name, f"{self._file.path} can't be read", remedy)

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
        steps = {
            cpu: [step_of_u32(new, old) for new, old in zip(line[1:], before[cpu][1:], strict=True)]
            for cpu, line in now.items()
            if cpu in before
        }
        rows = [(tick.start, cpu, *moved) for cpu, moved in steps.items() if any(moved) and min(moved) >= 0]
        return table_rows("softnet", _COLUMNS, rows)

    def _lines(self, content: bytes) -> Lines:
        lines = parse_softnet_stat(content)
        numbered = {line.cpu: line for line in lines if line.cpu is not None}
        if numbered:
            return numbered
        # Older kernels do not number the lines: there is one per online core.
        cpus = online_cpus(self._host) or []
        return dict(zip(cpus, lines, strict=True)) if len(cpus) == len(lines) else {}

    def close(self) -> None:
        self._file.close()
