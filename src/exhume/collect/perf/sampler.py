"""Code that came to the kernel or left it: BPF programs, trampolines.

A container runtime loads a BPF program for every container, and reading the kernel's symbols anew costs a tenth of a
second of CPU. So what changed is only remembered; it matters when a sample lies in it.
"""

import platform
from dataclasses import astuple, dataclass, replace

import numpy as np
import numpy.typing as npt

from exhume.collect.containers.pod_names import PodNames
from exhume.collect.perf.process_table import ProcessBook, keepers
from exhume.collect.perf.records import (
    RawSamples,
    Records,
    RecordType,
    U64Array,
    chain_keys,
    decode_samples,
    has_user_part,
    lost_counts,
    throttled_while_busy,
    walk,
)
from exhume.collect.perf.restarts import Restarts, Told
from exhume.collect.perf.rings import RingSet
from exhume.collect.perf.stack_keys import Places, links_of
from exhume.collect.perf.stack_table import Chain, Stack, StackBook
from exhume.collect.perf.tasks import Image, Tasks
from exhume.collect.perf.tracepoints import CGROUP_OPERATIONS, WANTED, TracepointRows, find_tracefs, load_tracepoint
from exhume.collect.perf.unique import distinct, groups_of
from exhume.collect.processes import ProcessReader
from exhume.collect.source import TickRows
from exhume.collect.sources.exit_codes import ExitCodes
from exhume.collect.symbols.file_worker import owner_of
from exhume.collect.symbols.mappings import strip_tags, user_va_bits
from exhume.collect.symbols.symbolizer import Symbolizer
from exhume.model.clock import MILLIS, Tick
from exhume.model.facts import MissingSource
from exhume.model.tables import CgroupEvents, Columns, Events, Losses, to_columns
from exhume.procfs.host import Host

_LOW = np.uint64(0xFFFFFFFF)
# Beyond this, where they lie in all stands for each of them.
_RANGES_KEPT = 4096


class KernelChanges:
    """The address ranges that changed since the kernel's symbols were last read."""

    def __init__(self) -> None:
        self._starts: U64Array = np.zeros(0, dtype=np.uint64)
        self._ends: U64Array = np.zeros(0, dtype=np.uint64)

    def note(self, records: Records) -> None:
        """Take in what the kernel told of its own code."""
        at = records.of(RecordType.KSYMBOL)
        if not len(at):
            return
        starts = records.words[at + 1]
        # An address near the end of all must not wrap into an end before its start.
        ends = np.maximum(starts + (records.words[at + 2] & _LOW), starts)
        starts, ends = np.concatenate([self._starts, starts]), np.concatenate([self._ends, ends])
        order = np.argsort(starts)
        # Ranges may overlap: each ends where the farthest of those before it does.
        self._starts, self._ends = starts[order], np.maximum.accumulate(ends[order])
        if len(self._starts) > _RANGES_KEPT:
            self._starts, self._ends = self._starts[:1], self._ends[-1:]

    def touched(self, addresses: U64Array) -> bool:
        """Whether an address lies in code that changed; if so, all changes are taken as seen to."""
        if not len(self._starts):
            return False
        near = addresses[(addresses >= self._starts[0]) & (addresses <= self._ends[-1])]
        if not len(near):
            return False
        # A return address may lie just behind the end.
        inside = near <= self._ends[np.searchsorted(self._starts, near, side="right") - 1]
        if not inside.any():
            return False
        self._starts, self._ends = self._starts[:0], self._ends[:0]
        return True


# The longest record that tells of a task: a mapping, with the longest path.
TASK_RECORD_BYTES = 4352
# Processes with too many mappings that are named in one tick.
PROCESSES_NAMED = 16


@dataclass(frozen=True, slots=True)
class Drained:
    """A tick's records of all rings; `cpus` are the rings' cores, in their order; `whole` is False when task records
    are missing, or may be: the kernel tells of a loss only once there is room again."""

    cpus: list[int]
    samples: Records
    tasks: Records
    whole: bool


class Sampler:
    """Stacks of every core, with the names and processes that belong to them, and what tracepoints tell."""

    name = "stacks"

    def __init__(self, host: Host, rate_hz: int, *, keep_secrets: bool = False) -> None:
        tracefs = find_tracefs(host)
        found = [load_tracepoint(tracefs, name) for name in WANTED] if tracefs else []
        tracepoints = [tracepoint for tracepoint in found if tracepoint]
        self._rings = RingSet(host, rate_hz, tracepoints)
        self._host = host
        self._symbolizer = Symbolizer(host)
        self._book = StackBook(self._symbolizer)
        self._tasks = Tasks(host)
        self._processes = ProcessBook(ProcessReader(host, keep_secrets=keep_secrets), PodNames(host))
        self._restarts = Restarts()
        self._exit_codes = _open_exit_codes()
        self.rate_hz = rate_hz
        self._started = False
        # Whether every task record was taken in: else what is known of processes may be stale.
        self._followed = True
        self._changes = KernelChanges()
        self._kernel_generation = 0
        # Only there do addresses come with something else in their upper bits.
        self._va_bits = user_va_bits(host) if platform.machine() == "aarch64" else None
        self.ring_fill = 0
        self.traces_cgroups = self._rings.tracing and any(t.name == "cgroup_mkdir" for t in tracepoints)
        if not self.traces_cgroups:
            # On some cores they may be open all the same; another source tells of them now, and of all.
            tracepoints = [tracepoint for tracepoint in tracepoints if tracepoint.name not in CGROUP_OPERATIONS]
        self._tracepoints = TracepointRows(tracepoints)

    @property
    def event_source(self) -> str:
        """What drives the samples: a fact of the recording."""
        return "cycles" if self._rings.hardware else "cpu-clock"

    @property
    def missing(self) -> list[MissingSource]:
        return list(self._symbolizer.missing)

    def set_rate(self, rate_hz: int) -> None:
        self._rings.set_rate(rate_hz)
        self.rate_hz = rate_hz

    def begin_segment(self) -> None:
        """The next rows go to a new segment, which has to stand alone."""
        self._book.begin_segment()
        self._processes.begin_segment()

    def release_memory(self) -> None:
        """Drop everything that can be found out again."""
        self._book.forget()
        self._tasks.forget()

    def close(self) -> None:
        self._rings.close()
        if self._exit_codes is not None:
            self._exit_codes.close()

    def read(self, tick: Tick) -> TickRows:
        if not self._started:
            self._started = True
            self._rings.start()
            return {}
        followed, self._followed = self._followed, False
        drained = self._drain()
        samples = decode_samples(drained.samples)
        if self._va_bits:
            samples = replace(samples, addresses=strip_tags(samples.addresses, self._va_bits))
        if not followed or not drained.whole:
            self._distrust()
        self._tasks.apply([drained.tasks], set(samples.pid.tolist()))
        self._processes.changed(self._tasks.take_began())
        self._changes.note(drained.tasks)
        rows: dict[str, Columns] = {}
        stacks = self._stacks(samples)
        idle = np.fromiter((stack.idle for stack in stacks), dtype=np.bool_, count=len(stacks))
        again = self._started_again(tick, drained)
        seen = self._add_samples(rows, samples, stacks, idle)
        keeping = keepers(samples.pid[~idle], samples.tid[~idle], self.rate_hz * tick.seconds)
        processes = self._processes.rows(tick.start, [*seen, *again.asked], self._tasks.gone, keeping)
        if processes:
            rows["processes"] = processes
        self._add_counts(rows, tick, drained, samples, idle)
        rows.update(self._book.take_rows())
        self._add_told(rows, drained.tasks, again)
        losses = self._losses(tick, drained)
        if losses:
            rows["losses"] = to_columns("losses", losses)
        self._tasks.settle()
        self._follow_kernel()
        # A loss may lie before or behind what was taken in: nothing of this tick may stay either.
        self._followed = drained.whole
        return rows

    def _follow_kernel(self) -> None:
        """Drop what was concluded from the kernel's functions as they were before they were read anew."""
        if self._symbolizer.kernel_generation != self._kernel_generation:
            self._kernel_generation = self._symbolizer.kernel_generation
            self._book.forget()

    def _distrust(self) -> None:
        """Forks, execs or ends were missed: another process or program may be behind any number."""
        self._tasks.forget()
        self._processes.forget()

    def _drain(self) -> Drained:
        before = list(self._rings)
        gone = self._rings.follow_hotplug()
        # A core that came back has forked and execed unwatched until now.
        moved = before != list(self._rings)
        rings = [*self._rings, *gone]
        parts = [each.samples.read() for each in rings]
        tasks = [each.tasks.read() for each in rings]
        self.ring_fill = max(
            (len(part) * 1000 // each.samples.size for part, each in zip(parts, rings, strict=True)), default=0
        )
        full = any(len(part) + TASK_RECORD_BYTES > each.tasks.size for part, each in zip(tasks, rings, strict=True))
        for each in gone:
            each.close()
        records = walk(*tasks)
        whole = not (moved or full or any(records.damaged) or any(lost_counts(records)))
        return Drained([each.samples.cpu for each in rings], walk(*parts), records, whole)

    def _stacks(self, samples: RawSamples) -> list[Stack]:
        """The stack of each sample."""
        user = has_user_part(samples)
        images, image_of = self._images(samples, user)
        if self._changes.touched(samples.addresses):
            self._symbolizer.kernel_changed()
        links = links_of(samples, Places([(i.space, i.salt) for i in images]), image_of, self._symbolizer)
        # What is known goes by the numbers of functions, which were just given anew if the kernel was read anew.
        self._follow_kernel()
        # Chains of the idle task are apart: only there does an idle leaf mean idle. So are those of unknown programs,
        # whose addresses say nothing.
        idle_task = samples.pid == 0
        unknown = user & (image_of < 0)
        keys = chain_keys(samples, links, (idle_task + 2 * unknown).astype(np.uint64))
        unique, first, inverse = distinct(keys)
        known = [self._book.find(key) for key in unique.tolist()]
        new: dict[int, Chain] = {}
        idle_keys: set[int] = set()
        for place in [place for place, stack in enumerate(known) if stack is None]:
            key, index = int(unique[place]), int(first[place])
            image = images[image_of[index]] if image_of[index] >= 0 else None
            new[key] = Chain(samples.chain(index).tolist(), image.space if image else None)
            if idle_task[index]:
                idle_keys.add(key)
        if new:
            resolved = self._book.resolve(new, idle_keys)
            known = [stack or resolved[key] for stack, key in zip(known, unique.tolist(), strict=True)]
        return [stack for index in inverse.tolist() if (stack := known[index]) is not None]

    def _images(self, samples: RawSamples, user: npt.NDArray[np.bool_]) -> tuple[list[Image], npt.NDArray[np.int64]]:
        """The images that were sampled, and which of them each sample ran (-1: unknown, or in the kernel alone)."""
        image_of = np.full(len(samples), -1, dtype=np.int64)
        places = np.flatnonzero(user)
        numbers: dict[int, int] = {}
        images: list[Image] = []

        def number(image: Image | None) -> int:
            if image is None:
                return -1
            if id(image) not in numbers:
                numbers[id(image)] = len(images)
                images.append(image)
            return numbers[id(image)]

        for group in groups_of(samples.pid[places]):
            at = places[group]
            pid = int(samples.pid[at[0]])
            image_of[at] = number(self._tasks.image_at(pid, int(samples.time[at[-1]])))
            if self._tasks.changed_image(pid):
                for place, time in zip(at.tolist(), samples.time[at].tolist(), strict=True):
                    image_of[place] = number(self._tasks.image_at(pid, time))
        return images, image_of

    def _names(self, samples: RawSamples) -> npt.NDArray[np.object_]:
        """The thread name at each sample."""
        names = np.empty(len(samples), dtype=object)
        for at in groups_of(samples.tid):
            pid, tid = int(samples.pid[at[0]]), int(samples.tid[at[0]])
            names[at] = self._tasks.name_at(pid, tid, int(samples.time[at[0]]))
            if self._tasks.changed_name(tid):
                for place in at.tolist():
                    names[place] = self._tasks.name_at(pid, tid, int(samples.time[place]))
        return names

    def _add_samples(
        self, rows: dict[str, Columns], samples: RawSamples, stacks: list[Stack], idle: npt.NDArray[np.bool_]
    ) -> list[tuple[int, int | None, str]]:
        """The rows; returns the processes that were sampled: pid, parent where it is known, name."""
        busy = ~idle
        kept = int(busy.sum())
        if not kept:
            return []
        names = self._names(samples)[busy]
        pids = samples.pid[busy]
        rows["samples"] = {
            "time_ms": (samples.time[busy] // np.uint64(MILLIS)).astype(np.int64),
            "cpu": samples.cpu[busy],
            "pid": pids,
            "tid": samples.tid[busy],
            "comm": names,
            "stack": np.fromiter((stack.id for stack in stacks if not stack.idle), dtype=np.uint64, count=kept),
            "weight_us": np.full(kept, 1_000_000 // self.rate_hz, dtype=np.uint32),
        }
        first = {pid: place for place, pid in reversed(list(enumerate(pids.tolist())))}
        return [(pid, self._tasks.parent(pid), str(names[place])) for pid, place in first.items() if pid > 0]

    def _started_again(self, tick: Tick, drained: Drained) -> Told:
        """Programs that loop. After a loss nobody knows who is who."""
        failed = None if self._exit_codes is None else self._exit_codes.drain()
        if not drained.whole:
            self._restarts.forget()
            return Told([], [])
        return self._restarts.observe(tick.end, drained.tasks, failed, self._tasks.known_name)

    def _add_counts(
        self,
        rows: dict[str, Columns],
        tick: Tick,
        drained: Drained,
        samples: RawSamples,
        idle: npt.NDArray[np.bool_],
    ) -> None:
        # A core that was away for a blink has two rings, and one row.
        cpus = sorted(set(drained.cpus))
        size = cpus[-1] + 1
        # A sample taken while its CPU went offline may carry a number beyond the ones that are left.
        inside = samples.cpu < size
        idle_counts = np.bincount(samples.cpu[inside & idle], minlength=size)[cpus]
        busy_counts = np.bincount(samples.cpu[inside & ~idle], minlength=size)[cpus]
        rows["sampling"] = {
            "time": np.full(len(cpus), tick.start, dtype=np.int64),
            "cpu": np.array(cpus, dtype=np.uint16),
            "busy": busy_counts.astype(np.uint32),
            "idle": idle_counts.astype(np.uint32),
            "lost": np.bincount(drained.cpus, lost_counts(drained.samples), size)[cpus].astype(np.uint32),
        }

    def _losses(self, tick: Tick, drained: Drained) -> list[Losses]:
        counts = {
            "lost-samples": lost_counts(drained.samples),
            "lost-task-records": lost_counts(drained.tasks),
            "damaged-bytes": drained.samples.damaged,
            "damaged-task-bytes": drained.tasks.damaged,
            "throttled": throttled_while_busy(drained.samples),
        }
        rings = [
            Losses(tick.start, self.name, kind, count, _LOSS_TEXT[kind], cpu)
            for kind, by_ring in counts.items()
            for cpu, count in zip(drained.cpus, by_ring, strict=True)
            if count
        ]
        refused = [Losses(tick.start, self.name, *astuple(row)) for row in self._symbolizer.take_refusals()]
        return [*rings, *refused, *self._skipped_mappings(tick)]

    def _skipped_mappings(self, tick: Tick) -> list[Losses]:
        """The processes that have more executable mappings than are kept."""
        losses: list[Losses] = []
        for pid, count in self._tasks.take_skipped().most_common(PROCESSES_NAMED):
            name, owner = self._tasks.known_name(pid) or "?", owner_of(self._host, pid)
            text = f"process {pid} ({name}, uid {owner}) has too many executable mappings: code there has no names"
            losses.append(Losses(tick.start, self.name, "lost-mappings", count, text))
        return losses

    def _add_told(self, rows: dict[str, Columns], records: Records, again: Told) -> None:
        """What tracepoints tell, and what was started again."""
        cgroups: list[CgroupEvents] = []
        events: list[Events] = []
        if RecordType.SAMPLE in records.types:
            cgroups, events = self._tracepoints.decode(records, self._tasks.name_at)
        events = [*events, *again.events]
        if cgroups:
            cgroups.sort(key=lambda row: row.time)
            rows["cgroup_events"] = to_columns("cgroup_events", cgroups)
        if events:
            rows["events"] = to_columns("events", events)


def _open_exit_codes() -> ExitCodes | None:
    """Who fails, where the kernel tells; without it, what is started again is told without saying how it ended."""
    try:
        return ExitCodes()
    except OSError:
        return None


_LOSS_TEXT = {
    "lost-samples": "the ring was full: stack samples were not written",
    "lost-task-records": "the ring was full: forks, execs, mappings or cgroup events were not written",
    "damaged-bytes": "bytes of a ring that made no sense: stack samples",
    "damaged-task-bytes": "bytes of a ring that made no sense: forks, execs, mappings or cgroup events",
    "throttled": "the kernel held back sampling on this core (kernel.perf_cpu_time_max_percent)",
}
