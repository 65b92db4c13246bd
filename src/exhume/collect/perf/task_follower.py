"""What tasks do: the rows of processes and cgroup_events, and the events of restarts and transmit timeouts."""

from exhume.collect.containers.names import PodNames
from exhume.collect.perf.netlink import ExitCodes
from exhume.collect.perf.process_table import ProcessRows, keepers
from exhume.collect.perf.records import RecordType
from exhume.collect.perf.restarts import RestartRows, Restarts
from exhume.collect.perf.rings import Drained
from exhume.collect.perf.run_delays import RunDelays
from exhume.collect.perf.sampler import Sampled
from exhume.collect.perf.tasks import Tasks
from exhume.collect.perf.tracepoints import Tracepoint, TracepointRows
from exhume.collect.processes import ProcessReader
from exhume.collect.symbols.owners import Owners, owner_of
from exhume.model.clock import Tick
from exhume.model.tables import CgroupEvents, Columns, Events, Losses, to_columns
from exhume.procfs.host import Host

# Processes with too many mappings that are named in one tick.
PROCESSES_NAMED = 16


class TaskFollower:
    """Describes the processes that were sampled, and follows restarts and tracepoints."""

    def __init__(self, host: Host, tasks: Tasks, tracepoints: list[Tracepoint], *, keep_secrets: bool = False) -> None:
        self._host = host
        self._tasks = tasks
        reader = ProcessReader(host, keep_secrets=keep_secrets)
        self._processes = ProcessRows(reader, PodNames(host), Owners(host))
        self._run_delays = RunDelays(host)
        self._restarts = Restarts()
        self._exit_codes = _open_exit_codes()
        self._tracepoints = TracepointRows(tracepoints)

    def read(self, tick: Tick, drained: Drained, sampled: Sampled, samples_per_core: float) -> dict[str, Columns]:
        """The rows of a tick, whose task records the tasks must have."""
        self._processes.changed(self._tasks.take_began())
        restarts = self._restarted(tick, drained)
        rows: dict[str, Columns] = {}
        keeping = keepers(sampled.pids, sampled.tids, samples_per_core)
        seen = [*sampled.processes, *restarts.processes]
        processes = self._processes.rows(tick.start, seen, self._tasks.gone, keeping)
        if processes:
            rows["processes"] = processes
        rows |= self._run_delays.read(tick, sampled, samples_per_core)
        cgroups: list[CgroupEvents] = []
        events: list[Events] = []
        if RecordType.SAMPLE in drained.tasks.types:
            cgroups, events = self._tracepoints.decode(drained.tasks, self._tasks.name_at)
        events = [*events, *restarts.events]
        if cgroups:
            cgroups.sort(key=lambda row: row.time)
            rows["cgroup_events"] = to_columns("cgroup_events", cgroups)
        if events:
            rows["events"] = to_columns("events", events)
        return rows

    def losses(self, tick: Tick, source: str) -> list[Losses]:
        """The processes that have more executable mappings than are kept."""
        losses: list[Losses] = []
        skipped, excess = self._tasks.take_skipped()
        for pid, count in skipped.most_common(PROCESSES_NAMED):
            name, owner = self._tasks.known_name(pid) or "?", owner_of(self._host, pid)
            text = f"process {pid} ({name}, {owner}) has too many executable mappings: code there has no names"
            losses.append(Losses(tick.start, source, "lost-mappings", count, text))
        beyond = [
            *(("lost-mappings", "executable mappings", each) for each in excess.most_common(PROCESSES_NAMED)),
            *(("processes-deferred", "processes", each) for each in self._processes.take_deferred()),
        ]
        for kind, what, (owner, count) in beyond:
            text = f"{count} {what} of {owner} in a tick are beyond its share"
            losses.append(Losses(tick.start, source, kind, count, text))
        return losses

    def begin_segment(self) -> None:
        self._processes.begin_segment()
        self._run_delays.begin_segment()

    def forget(self) -> None:
        """Task records were lost: a number may by now belong to another process."""
        self._processes.forget()

    def close(self) -> None:
        self._run_delays.close()
        if self._exit_codes is not None:
            self._exit_codes.close()

    def _restarted(self, tick: Tick, drained: Drained) -> RestartRows:
        """Programs that loop. After a loss, lives can't be matched to their ends."""
        failed = None if self._exit_codes is None else self._exit_codes.drain()
        if not drained.whole:
            self._restarts.forget()
            return RestartRows([], [])
        return self._restarts.observe(tick.end, drained.tasks, failed, self._tasks.known_name)


def _open_exit_codes() -> ExitCodes | None:
    """Exit codes where the kernel hands them out; without them, a restart is reported without how it ended."""
    try:
        return ExitCodes()
    except OSError:
        return None
