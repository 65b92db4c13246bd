"""Pressure stall information: microseconds in which some or all tasks were held up for want of a resource."""

from exhume.collect.host import Host, ProcFile
from exhume.model.errors import Missing

_COLUMNS = {
    "cpu": {b"some": "psi_cpu_some"},
    "memory": {b"some": "psi_memory_some", b"full": "psi_memory_full"},
    "io": {b"some": "psi_io_some", b"full": "psi_io_full"},
}


class Pressure:
    """Running totals of /proc/pressure, by column of the node table."""

    def __init__(self, host: Host) -> None:
        self._files = {resource: ProcFile(host.proc / "pressure" / resource) for resource in _COLUMNS}
        self.missing: tuple[Missing, ...] = ()
        # A kernel that has it compiled in but switched off shows the files and fails the read.
        if all(file.read_or_none() is None for file in self._files.values()):
            self.missing = (
                Missing("node", "no pressure stall information", "boot with psi=1 (needs a kernel with CONFIG_PSI)"),
            )
            self._files = {}

    def totals(self) -> dict[str, int]:
        totals = {}
        for resource, file in self._files.items():
            content = file.read_or_none()
            if content is None:
                continue
            columns = _COLUMNS[resource]
            for line in content.split(b"\n"):
                column = columns.get(line[:4])
                if column:
                    totals[column] = int(line[line.rfind(b"=") + 1 :])
        return totals

    def close(self) -> None:
        for file in self._files.values():
            file.close()
