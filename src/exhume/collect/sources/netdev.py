"""Transmit timeouts of network queues, counted by the kernel (net/sched/sch_generic.c, dev_watchdog). On kernels that
log them with WARN_ONCE the line appears once per boot; the counter moves every time."""

from collections.abc import Iterator
from pathlib import Path

from exhume.collect.source import Pace, TickRows, event_rows
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import NIC_TX_TIMEOUT, Events
from exhume.procfs.host import Host, ProcFile, subdirectories

# Queues read per tick. A timeout takes at least five seconds (dev->watchdog_timeo) on most drivers, so reading the
# queues in turns loses nothing.
_QUEUES_PER_TICK = 64


def transmit_queues(devices: Path) -> Iterator[tuple[str, int, Path]]:
    """Device, number and timeout file of every transmit queue below /sys/class/net. Virtual devices (one per container)
    have no watchdog and are left out."""
    for device in subdirectories(devices):
        if (devices / device / "device").exists():
            for name in subdirectories(devices / device / "queues"):
                if name.startswith("tx-") and name[3:].isdigit():
                    yield device, int(name[3:]), devices / device / "queues" / name / "tx_timeout"


class _Queue:
    __slots__ = ("device", "file", "number", "timeouts")

    def __init__(self, device: str, number: int, path: Path) -> None:
        self.device, self.number, self.file = device, number, ProcFile(path)
        self.timeouts = self.read()

    def read(self) -> int | None:
        content = self.file.read_or_none()
        return int(content) if content and content.strip().isdigit() else None


class NetdevSource:
    """Rows of the events table (kind nic-tx-timeout), for queues of devices backed by hardware."""

    name = "netdev"

    def __init__(self, host: Host) -> None:
        self._devices = host.sys / "class/net"
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._turn = 0
        self._search_pace = Pace(10.0)
        if not self._devices.is_dir():
            raise SourceUnavailable(self.name, f"{self._devices} can't be seen", "mount sysfs at /sys")

    def read(self, tick: Tick) -> TickRows:
        if self._search_pace.due(tick.end):
            self._search()
            self._search_pace.done(tick.end)
        timeouts: list[Events] = []
        for queue in self._some():
            before, now = queue.timeouts, queue.read()
            queue.timeouts = now
            if before is not None and now is not None and now > before:
                text = f"{queue.device}: transmit queue {queue.number} timed out ({now - before} more)"
                event = Events(tick.start, self.name, NIC_TX_TIMEOUT, "critical", text, value=float(now - before))
                event.device, event.queue = queue.device, queue.number
                timeouts.append(event)
        return event_rows(timeouts)

    def close(self) -> None:
        for queue in self._queues.values():
            queue.file.close()
        self._queues = {}

    def _some(self) -> list[_Queue]:
        queues = list(self._queues.values())
        if len(queues) <= _QUEUES_PER_TICK:
            return queues
        first = self._turn % len(queues)
        self._turn = first + _QUEUES_PER_TICK
        return [*queues[first:], *queues[:first]][:_QUEUES_PER_TICK]

    def _search(self) -> None:
        there = {(device, number): path for device, number, path in transmit_queues(self._devices)}
        for key in self._queues.keys() - there.keys():
            self._queues.pop(key).file.close()
        for key in there.keys() - self._queues.keys():
            self._queues[key] = _Queue(*key, there[key])
