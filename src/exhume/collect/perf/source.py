"""The perf source: drains the rings once a tick, and passes the records to the sampler and the task follower."""

import errno
from dataclasses import replace

from exhume.collect.containers.names import PodNames
from exhume.collect.perf.netlink import ExitCodes
from exhume.collect.perf.process_table import ProcessRows, keepers
from exhume.collect.perf.records import LOSS_KINDS, RecordType, lost_counts, throttled_while_busy
from exhume.collect.perf.restarts import RestartRows, Restarts
from exhume.collect.perf.rings import Drained, RingSet
from exhume.collect.perf.run_delays import RunDelays
from exhume.collect.perf.sampler import Sampled, Sampler
from exhume.collect.perf.tasks import Tasks
from exhume.collect.perf.tracepoints import CGROUP_OPERATIONS, Tracepoint, TracepointRows, load_tracepoints
from exhume.collect.processes import ProcessReader
from exhume.collect.source import NOTHING, TickRows
from exhume.collect.symbols.opener_process import OpenerProcess
from exhume.collect.symbols.owners import Owners, owner_of
from exhume.model.clock import Tick
from exhume.model.facts import MissingSource
from exhume.model.tables import CgroupEvents, Columns, Events, Losses, to_columns
from exhume.procfs.host import Host, sees_all_processes

# How many processes with too many mappings are named in one tick.
PROCESSES_NAMED = 16


# Why there are no exit codes (drivers/connector/connector.c, cn_init: only in the initial network namespace; before 6.6
# cn_proc.c, cn_proc_mcast_ctl, does not answer without CAP_NET_ADMIN).
_NETWORK = "run in the node's network (hostNetwork: true, docker run --network=host), with CONFIG_PROC_EVENTS"
_PROCESSES = "run in the node's pid namespace (hostPID: true, docker run --pid=host)"
_EXIT_CODE_REMEDIES = {
    errno.EPROTONOSUPPORT: _NETWORK,
    errno.ECONNREFUSED: _NETWORK,
    errno.EPERM: "add CAP_NET_ADMIN",
    TimeoutError: "add CAP_NET_ADMIN",
}


class TaskFollower:
    """Describes the processes that were sampled, and follows restarts and tracepoints."""

    def __init__(
        self,
        host: Host,
        tasks: Tasks,
        tracepoints: list[Tracepoint],
        *,
        keep_secrets: bool = False,
        foreign: bool = False,
    ) -> None:
        self._host = host
        self._tasks = tasks
        reader = ProcessReader(host, keep_secrets=keep_secrets)
        self._processes = ProcessRows(reader, PodNames(host), Owners(host))
        self._run_delays = RunDelays(host)
        self._restarts = Restarts()
        self.missing: list[MissingSource] = []
        self._exit_codes = self._open_exit_codes(foreign)
        if (unnamed := self._processes.pods_without_names(host)) is not None:
            self.missing.append(unnamed)
        self._tracepoints = TracepointRows(tracepoints)

    def read(self, tick: Tick, drained: Drained, sampled: Sampled, samples_per_core: float) -> dict[str, Columns]:
        """The rows of a tick. The task records of the tick must already be applied to the tasks."""
        self._processes.changed(self._tasks.take_began())
        restarts = self._restarted(tick, drained)
        rows: dict[str, Columns] = {}
        keeping = keepers(sampled.pids, sampled.tids, samples_per_core)
        seen = [*sampled.processes, *restarts.processes]
        processes = self._processes.rows(tick.start, seen, self._tasks.gone, keeping)
        if processes:
            rows["processes"] = processes
        rows |= self._run_delays.read(tick, sampled, samples_per_core, self._tasks.ended_threads)
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
        """The processes with more executable mappings than are kept."""
        skipped, excess = self._tasks.take_skipped()
        deferred = self._processes.take_deferred()
        if not (skipped or excess or deferred):
            return []
        losses: list[Losses] = []
        for pid, count in skipped.most_common(PROCESSES_NAMED):
            name, owner = self._tasks.known_name(pid) or "?", owner_of(self._host, pid)
            text = f"process {pid} ({name}, {owner}) has too many executable mappings: code there has no names"
            losses.append(Losses(tick.start, source, "lost-mappings", count, text))
        beyond = [
            *(("lost-mappings", "executable mappings", each) for each in excess.most_common(PROCESSES_NAMED)),
            *(("processes-deferred", "processes", each) for each in deferred),
        ]
        for kind, what, (owner, count) in beyond:
            text = f"{count} {what} of {owner} in a tick are beyond its share"
            losses.append(Losses(tick.start, source, kind, count, text))
        return losses

    def begin_segment(self) -> None:
        self._processes.begin_segment()
        self._run_delays.begin_segment()

    def forget(self) -> None:
        """Forget everything: task records were lost, so any pid may have been reused."""
        self._processes.forget()

    def close(self) -> None:
        self._run_delays.close()
        if self._exit_codes is not None:
            self._exit_codes.close()

    def _open_exit_codes(self, foreign: bool) -> ExitCodes | None:
        """Open the source of exit codes if the kernel provides one; without it, restarts are reported without an exit
        status."""
        if foreign:
            # They may arrive anyway, when another process on the node listens, but with pids of the node's namespace.
            reason = "the process connector has numbers of the node's pid namespace, and the recorder is in another"
            self.missing.append(MissingSource("exit-codes", reason, _PROCESSES))
            return None
        try:
            return ExitCodes()
        except OSError as error:
            remedy = _EXIT_CODE_REMEDIES.get(type(error) if isinstance(error, TimeoutError) else error.errno, "")
            reason = f"the kernel's process connector can't be used ({error.strerror or 'no answer'})"
            self.missing.append(MissingSource("exit-codes", reason, remedy or _NETWORK))
            return None

    def _restarted(self, tick: Tick, drained: Drained) -> RestartRows:
        """Programs that loop. After a loss, lives can't be matched to their exits."""
        failed = None if self._exit_codes is None else self._exit_codes.drain()
        if not drained.whole:
            self._restarts.forget()
            return RestartRows([], [])
        return self._restarts.observe(tick.end, drained.tasks, failed, self._tasks.known_name)


_NO_NAMES = MissingSource(
    "process-names",
    "the recorder is in a pid namespace of its own: what runs outside of it has no number and no name here",
    _PROCESSES,
)
_LOSS_TEXT = {
    "lost-samples": "the ring was full: stack samples were not written",
    "lost-task-records": "the ring was full: forks, execs, mappings or cgroup events were not written",
    "damaged-bytes": "bytes of a ring that made no sense: stack samples",
    "damaged-task-bytes": "bytes of a ring that made no sense: forks, execs, mappings or cgroup events",
    "throttled": "the kernel held back sampling on this core (kernel.perf_cpu_time_max_percent)",
}


class PerfSource:
    """Rows of samples, sampling, stacks, frames, processes, cgroup_events and events."""

    name = "stacks"

    def __init__(
        self, host: Host, rate_hz: int, *, keep_secrets: bool = False, opener: OpenerProcess | None = None
    ) -> None:
        tracepoints = load_tracepoints(host)
        self._rings = RingSet(host, rate_hz, tracepoints)
        self.traces_cgroups = self._rings.tracing and any(each.name == "cgroup_mkdir" for each in tracepoints)
        if not self.traces_cgroups:
            # They may be open on some cores anyway; another source records them now, and on all cores.
            tracepoints = [each for each in tracepoints if each.name not in CGROUP_OPERATIONS]
        self._foreign = not sees_all_processes(host)
        self._tasks = Tasks(host, foreign=self._foreign)
        self._sampler = Sampler(host, rate_hz, self._tasks, opener)
        self._follower = TaskFollower(host, self._tasks, tracepoints, keep_secrets=keep_secrets, foreign=self._foreign)
        self._losses: list[Losses] = []
        self._started = False
        # Whether every task record was processed; otherwise the known state of processes may be stale.
        self._followed = True
        self.ring_fill = 0

    @property
    def rate_hz(self) -> int:
        return self._sampler.rate_hz

    @property
    def event_source(self) -> str:
        """The event that triggers samples: a fact of the recording."""
        return "cycles" if self._rings.hardware else "cpu-clock"

    @property
    def missing(self) -> list[MissingSource]:
        named = [_NO_NAMES] if self._foreign else []
        return [*named, *self._sampler.missing, *self._follower.missing]

    def set_rate(self, rate_hz: int) -> None:
        self._rings.set_rate(rate_hz)
        self._sampler.rate_hz = rate_hz

    def begin_segment(self) -> None:
        """The next rows go to a new segment, which must be complete by itself."""
        self._sampler.begin_segment()
        self._follower.begin_segment()

    def release_memory(self) -> None:
        """Drop everything that can be read again."""
        self._sampler.forget()
        self._tasks.forget()

    def end(self) -> None:
        """The next read is the last: it waits for outstanding names."""
        self._sampler.ending = True

    @property
    def parser_cost(self) -> tuple[float, int]:
        """CPU time in seconds, and memory in KiB, of the process that reads symbols."""
        return self._sampler.parser_cost

    def close(self) -> None:
        self._sampler.close()
        self._rings.close()
        self._follower.close()

    def read(self, tick: Tick) -> TickRows:
        if not self._started:
            self._started = True
            self._rings.start()
            return NOTHING
        followed, self._followed = self._followed, False
        drained = self._rings.drain()
        if self._foreign:
            drained = replace(drained, tasks=drained.tasks.without_foreign_tasks())
        self.ring_fill = drained.fill
        samples = self._sampler.decode(drained.samples)
        if not followed or not drained.whole:
            # Forks, execs or exits were missed: any pid may belong to another process or run another program.
            self._tasks.forget()
            self._follower.forget()
        self._tasks.apply([drained.tasks], set(samples.pid.tolist()))
        sampled = self._sampler.read(tick, drained, samples)
        rows = sampled.rows | self._follower.read(tick, drained, sampled, self.rate_hz * tick.seconds)
        self._losses += self._ring_losses(tick, drained)
        self._losses += self._sampler.losses(tick, self.name)
        self._losses += self._follower.losses(tick, self.name)
        self._tasks.settle()
        # The loss may lie before or after the processed records, so nothing of this tick may be kept either.
        self._followed = drained.whole
        return rows

    def take_losses(self) -> list[Losses]:
        losses, self._losses = self._losses, []
        return losses

    def _ring_losses(self, tick: Tick, drained: Drained) -> list[Losses]:
        samples, tasks = drained.samples, drained.tasks
        if LOSS_KINDS.isdisjoint(samples.kinds | tasks.kinds) and not any(samples.damaged) and not any(tasks.damaged):
            return []
        counts = {
            "lost-samples": lost_counts(samples),
            "lost-task-records": lost_counts(tasks),
            "damaged-bytes": samples.damaged,
            "damaged-task-bytes": tasks.damaged,
            "throttled": throttled_while_busy(samples),
        }
        return [
            Losses(tick.start, self.name, kind, count, _LOSS_TEXT[kind], cpu)
            for kind, by_ring in counts.items()
            for cpu, count in zip(drained.cpus, by_ring, strict=True)
            if count
        ]
