"""Stack samples: the rows of samples, sampling, stacks and frames."""

import platform
import time
from collections import Counter
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.records import (
    IdleLeaves,
    RawSamples,
    Records,
    RecordType,
    U64Array,
    chain_keys,
    decode_samples,
    has_user_part,
    lost_counts,
    unique,
)
from exhume.collect.perf.rings import Drained
from exhume.collect.perf.stack_keys import MappingTable, key_parts
from exhume.collect.perf.stack_table import Chain, Stack, StackTable
from exhume.collect.perf.tasks import Image, Tasks
from exhume.collect.symbols.mappings import strip_tags, user_va_bits
from exhume.collect.symbols.opener_process import OpenerProcess
from exhume.collect.symbols.owners import fair_level
from exhume.collect.symbols.symbolizer import Symbolizer
from exhume.model.clock import MILLIS, Tick
from exhume.model.facts import MissingSource
from exhume.model.tables import Columns, Losses
from exhume.procfs.host import Host

# The maximum number of samples that wait for names; further samples are written without.
_MAX_HELD = 20_000
# The maximum number of new callchains resolved in a tick: each takes a tenth of a millisecond.
_MAX_NEW_STACKS = 4096
# How long the end of a recording waits for names.
_LAST_NAMES_S = 3.0
# Beyond this many changes, the range from the first to the last stands for all of them.
_RANGES_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Sampled:
    """The rows of a tick; `processes` are the sampled processes (pid, parent where known, name); `pids`, `tids`, `cpus`
    and `names` are those of each busy sample."""

    rows: dict[str, Columns]
    processes: list[tuple[int, int | None, str]]
    pids: npt.NDArray[np.int32]
    tids: npt.NDArray[np.int32]
    cpus: npt.NDArray[np.uint16]
    names: npt.NDArray[Any]


@dataclass(slots=True)
class _Held:
    """Samples of one tick that wait for names, with the keys of their callchains; `age` is in ticks."""

    columns: dict[str, npt.NDArray[Any]]
    keys: U64Array
    age: int = 0


class Sampler:
    """Turns callchains into stacks, with the names that the tasks had at the time.

    Files are read outside the tick, so a sample whose functions have no names yet is held for a few ticks and written
    once they are known; its row keeps the time at which it was taken.
    """

    def __init__(self, host: Host, rate_hz: int, tasks: Tasks, opener: OpenerProcess | None = None) -> None:
        self.rate_hz = rate_hz
        self._tasks = tasks
        self._symbolizer = Symbolizer(host, opener)
        self._stack_table = StackTable(self._symbolizer)
        self._changes = KernelChanges()
        self._kernel_generation = 0
        self._idle_leaves = IdleLeaves()
        self._held: list[_Held] = []
        self._held_chains: dict[int, Chain] = {}
        # Set before the last tick of a recording, which waits for names.
        self.ending = False
        # Only aarch64 has other data in the upper bits of addresses.
        self._va_bits = user_va_bits(host) if platform.machine() == "aarch64" else None

    @property
    def missing(self) -> list[MissingSource]:
        return list(self._symbolizer.missing)

    def decode(self, records: Records) -> RawSamples:
        """The samples of a tick, with tags stripped from their user addresses."""
        samples = decode_samples(records, self._idle_leaves)
        if self._va_bits:
            samples = replace(samples, addresses=strip_tags(samples.addresses, self._va_bits))
        return samples

    def read(self, tick: Tick, drained: Drained, samples: RawSamples) -> Sampled:
        """The rows of a tick. The task records of the tick must already be applied to the tasks."""
        self._changes.note(drained.tasks)
        self._symbolizer.poll()
        rows: dict[str, Columns] = {}
        if not len(samples) and not self._held:
            rows["sampling"] = _sample_counts(tick, drained, samples)
            return Sampled(rows, [], samples.pid, samples.tid, samples.cpu, np.zeros(0, dtype=object))
        keys, stacks, which, resolved, chains = self._stacks(samples)
        late = self._released(resolved)
        idle = np.fromiter((stack.idle for stack in stacks), dtype=np.bool_, count=len(stacks))[which]
        if idle.any():
            self._idle_leaves.learn(samples, idle)
            busy = ~idle
            keys, which = keys[busy], which[busy]
            samples = samples.without(idle)
        names: npt.NDArray[Any] = np.zeros(0, dtype=object)
        processes: list[tuple[int, int | None, str]] = []
        released: list[dict[str, npt.NDArray[Any]]] = []
        if len(samples):
            names = self._names(samples)
            columns: dict[str, npt.NDArray[Any]] = {
                "time_ms": (samples.time // np.uint64(MILLIS)).astype(np.int64),
                "cpu": samples.cpu,
                "pid": samples.pid,
                "tid": samples.tid,
                "comm": names,
                "weight_us": np.full(len(samples), 1_000_000 // self.rate_hz, dtype=np.uint32),
            }
            processes = self._processes(columns)
            released.append(self._hold(columns, keys, stacks, which, chains))
        if self.ending:
            late += self._last_released()
        # A new segment may have begun since the processes of the held samples were written.
        seen = {pid for pid, _, _ in processes}
        held = {each[0]: each for part in reversed(late) for each in self._processes(part)}
        processes += [each for pid, each in held.items() if pid not in seen]
        if released := [part for part in (*late, *released) if len(part["pid"])]:
            rows["samples"] = {name: np.concatenate([part[name] for part in released]) for name in released[0]}
        rows["sampling"] = _sample_counts(tick, drained, samples)
        rows.update(self._stack_table.take_rows())
        self._follow_kernel()
        return Sampled(rows, processes, samples.pid, samples.tid, samples.cpu, names)

    def _processes(self, columns: Columns) -> list[tuple[int, int | None, str]]:
        pids = columns["pid"].tolist()
        first = dict(zip(reversed(pids), range(len(pids) - 1, -1, -1), strict=True))
        return [(pid, self._tasks.parent(pid), str(columns["comm"][place])) for pid, place in first.items() if pid > 0]

    def _hold(
        self,
        columns: dict[str, npt.NDArray[Any]],
        keys: U64Array,
        stacks: list[Stack],
        which: npt.NDArray[np.int64],
        chains: dict[int, Chain],
    ) -> dict[str, npt.NDArray[Any]]:
        """The rows of the samples, one stack each, whose names are all known; the others are held for the next tick."""
        waits = np.fromiter((stack.patience > 0 for stack in stacks), np.bool_, count=len(stacks))[which]
        if waits.any() and sum(len(held.keys) for held in self._held) + waits.sum() <= _MAX_HELD:
            chosen = keys[waits]
            kept = {key: chains[key] for key in set(chosen.tolist()) if key not in self._held_chains}
            # Later mappings of the process must not be mistaken for those at the time of the sample.
            spaces = {id(chain.space): chain.space for chain in kept.values() if chain.space is not None}
            copies = {key: space.fork(space.pid) for key, space in spaces.items()}
            for chain in kept.values():
                chain.space = copies.get(id(chain.space))
            self._held_chains |= kept
            self._held.append(_Held({name: column[waits] for name, column in columns.items()}, chosen))
            which = which[~waits]
            columns = {name: column[~waits] for name, column in columns.items()}
        return self._written(columns, stacks, which)

    def _written(
        self, columns: dict[str, npt.NDArray[Any]], stacks: list[Stack], which: npt.NDArray[np.int64]
    ) -> dict[str, npt.NDArray[Any]]:
        """The rows with the ids of their stacks; each row has one of the stacks."""
        # Per stack: a large node has thousands of samples in a tick, but only some hundred stacks.
        self._stack_table.write(dict.fromkeys(stacks[place] for place in dict.fromkeys(which.tolist())))
        ids = np.fromiter((stack.id for stack in stacks), np.uint64, count=len(stacks))
        return {**columns, "stack": ids[which]}

    def _released(self, resolved: dict[int, Stack], *, last: bool = False) -> list[dict[str, npt.NDArray[Any]]]:
        """Rows of held samples that have their names now, or waited long enough."""
        released: list[dict[str, npt.NDArray[Any]]] = []
        waiting: list[_Held] = []
        for held in self._held:
            held.age += 1
            stacks = [resolved[key] for key in held.keys.tolist()]
            ready = np.fromiter((last or stack.patience <= held.age for stack in stacks), np.bool_, count=len(stacks))
            columns = {name: column[ready] for name, column in held.columns.items()}
            released.append(self._written(columns, stacks, np.flatnonzero(ready)))
            if not ready.all():
                held.columns = {name: column[~ready] for name, column in held.columns.items()}
                held.keys = held.keys[~ready]
                waiting.append(held)
        self._held = waiting
        keys = {key for held in waiting for key in held.keys.tolist()}
        self._held_chains = {key: self._held_chains[key] for key in keys}
        return released

    def _last_released(self) -> list[dict[str, npt.NDArray[Any]]]:
        """All held samples, with the names that arrive in time."""
        released: list[dict[str, npt.NDArray[Any]]] = []
        until = time.monotonic() + _LAST_NAMES_S
        while self._held:
            self._symbolizer.wait(until - time.monotonic())
            resolved = self._stack_table.resolve(self._held_chains, set())
            released += self._released(resolved, last=time.monotonic() >= until)
        return released

    def losses(self, tick: Tick, source: str) -> list[Losses]:
        """Files that could not be read for their symbols since the last call."""
        return [Losses(tick.start, source, *astuple(row)) for row in self._symbolizer.take_refusals()]

    @property
    def parser_cost(self) -> tuple[float, int]:
        """CPU seconds and KiB used to read files outside this process."""
        return self._symbolizer.queue.cost

    def close(self) -> None:
        self._symbolizer.queue.close()

    def begin_segment(self) -> None:
        self._stack_table.begin_segment()

    def forget(self) -> None:
        """Release memory; everything in use is resolved again."""
        self._stack_table.forget()

    def _follow_kernel(self) -> None:
        """Drop what was derived from the kernel's functions before its symbols were reloaded."""
        if self._symbolizer.kernel_generation != self._kernel_generation:
            self._kernel_generation = self._symbolizer.kernel_generation
            self._stack_table.forget()
            self._idle_leaves.forget()

    def _stacks(
        self, samples: RawSamples
    ) -> tuple[U64Array, list[Stack], npt.NDArray[np.int64], dict[int, Stack], dict[int, Chain]]:
        """The key of each sample; the stacks, and the stack of each sample; stacks and callchains, by key, of those
        that were new or held."""
        user = has_user_part(samples)
        images, image_of = self._images(samples, user)
        if self._changes.touched(samples.addresses):
            self._symbolizer.kernel_changed()
        table = MappingTable([(image.space, image.salt) for image in images])
        parts = key_parts(samples, table, image_of, self._symbolizer)
        # Known stacks are keyed by function numbers, which change when the kernel's symbols were just reloaded.
        self._follow_kernel()
        # The idle task's chains have keys of their own: only there does an idle leaf mean idle. So do the chains of
        # unknown programs, whose addresses mean nothing.
        idle_task = samples.pid == 0
        unknown = user & (image_of < 0)
        keys = chain_keys(samples, parts, (idle_task + 2 * unknown).astype(np.uint64))
        distinct, first, inverse = unique(keys)
        known = self._stack_table.find(distinct.tolist())
        # All together, so that a file is asked for all names at once.
        new = dict(self._held_chains)
        idle_keys: set[int] = set()
        pids: dict[int, int] = {}
        for place in [place for place, stack in enumerate(known) if stack is None]:
            key, index = int(distinct[place]), int(first[place])
            if key in new:
                continue
            image = images[image_of[index]] if image_of[index] >= 0 else None
            new[key] = Chain(samples.chain(index).tolist(), image.space if image else None)
            if idle_task[index]:
                idle_keys.add(key)
            else:
                pids[key] = int(samples.pid[index])
        if len(pids) > _MAX_NEW_STACKS:
            self._leave_excess(new, pids)
        resolved = self._stack_table.resolve(new, idle_keys) if new else {}
        stacks = [stack or resolved[key] for stack, key in zip(known, distinct.tolist(), strict=True)]
        return keys, stacks, inverse, resolved, new

    def _leave_excess(self, chains: dict[int, Chain], pids: dict[int, int]) -> None:
        """Leave out the user parts of new callchains (by key) that exceed the share of their owner."""
        owners = {pid: self._symbolizer.owners.of(pid, self._tasks.lineage(pid)) for pid in set(pids.values())}
        counts = Counter(owners[pid] for pid in pids.values())
        level = fair_level(counts.values(), _MAX_NEW_STACKS)
        left = dict.fromkeys(counts, level)
        for key, pid in pids.items():
            left[owners[pid]] -= 1
            chains[key].excess = left[owners[pid]] < 0
        for owner, count in counts.items():
            if count > level:
                text = "new stacks of {} in a tick are beyond its share: they have no functions of user code"
                self._symbolizer.refusals.count("lost-stacks", owner, count - level, text)

    def _images(self, samples: RawSamples, user: npt.NDArray[np.bool_]) -> tuple[list[Image], npt.NDArray[np.int64]]:
        """The images that were sampled, and which of them each sample ran (-1: unknown, or in the kernel only)."""
        image_of = np.full(len(samples), -1, dtype=np.int64)
        numbers: dict[int, int] = {}
        images: list[Image] = []

        def number(image: Image | None) -> int:
            if image is None:
                return -1
            if id(image) not in numbers:
                numbers[id(image)] = len(images)
                images.append(image)
            return numbers[id(image)]

        tasks, pids, times = self._tasks, samples.pid[user].tolist(), samples.time[user].tolist()
        # Per process if it ran only one program; in a fork storm there are as many processes as samples.
        unchanged = {
            pid: number(tasks.image_at(pid, time))
            for pid, time in dict(zip(pids, times, strict=True)).items()
            if not tasks.changed_image(pid)
        }
        image_of[user] = [
            unchanged[pid] if pid in unchanged else number(tasks.image_at(pid, time))
            for pid, time in zip(pids, times, strict=True)
        ]
        return images, image_of

    def _names(self, samples: RawSamples) -> npt.NDArray[np.object_]:
        """The thread name at each sample."""
        tasks, tids = self._tasks, samples.tid.tolist()
        threads = list(zip(samples.pid.tolist(), tids, samples.time.tolist(), strict=True))
        first = dict(zip(reversed(tids), reversed(threads), strict=True))
        unchanged = {tid: tasks.name_at(*each) for tid, each in first.items() if not tasks.changed_name(tid)}
        names = np.empty(len(samples), dtype=object)
        names[:] = [unchanged[each[1]] if each[1] in unchanged else tasks.name_at(*each) for each in threads]
        return names


def _sample_counts(tick: Tick, drained: Drained, samples: RawSamples) -> Columns:
    """Rows of the sampling table: how many samples of each core were busy, idle and lost."""
    # A core that was offline for less than a tick has two rings, but one row.
    cpus = sorted(set(drained.cpus))
    size = cpus[-1] + 1
    # A sample taken while its CPU went offline may carry a number beyond the remaining ones.
    idle_counts, busy_counts = (
        np.bincount(np.minimum(of, size), minlength=size + 1)[cpus] for of in (samples.idle_cpus, samples.cpu)
    )
    return {
        "time": np.full(len(cpus), tick.start, dtype=np.int64),
        "cpu": np.array(cpus, dtype=np.uint16),
        "busy": busy_counts.astype(np.uint32),
        "idle": idle_counts.astype(np.uint32),
        "lost": np.bincount(drained.cpus, lost_counts(drained.samples), size)[cpus].astype(np.uint32),
    }


class KernelChanges:
    """The address ranges that changed since the kernel's symbols were last read: code of BPF programs and trampolines
    that was loaded or unloaded (kernel/events/core.c, perf_event_ksymbol).

    A container runtime loads a BPF program for every container, and reading the kernel's symbols costs a tenth of a
    second of CPU. So a change is only noted, and takes effect when a sample lies in it.
    """

    def __init__(self) -> None:
        self._starts: U64Array = np.zeros(0, dtype=np.uint64)
        self._ends: U64Array = np.zeros(0, dtype=np.uint64)

    def note(self, records: Records) -> None:
        """Note the KSYMBOL records of a tick."""
        at = records.of(RecordType.KSYMBOL)
        if not len(at):
            return
        starts = records.words[at + 1]
        # An address near the end of the address space must not wrap around to an end before its start.
        ends = np.maximum(starts + records.low(at, 2), starts)
        starts, ends = np.concatenate([self._starts, starts]), np.concatenate([self._ends, ends])
        order = np.argsort(starts)
        # Ranges may overlap: each ends at the furthest end of all ranges up to it.
        self._starts, self._ends = starts[order], np.maximum.accumulate(ends[order])
        if len(self._starts) > _RANGES_KEPT:
            self._starts, self._ends = self._starts[:1], self._ends[-1:]

    def touched(self, addresses: U64Array) -> bool:
        """Whether an address lies in code that changed; if so, all changes are considered handled."""
        if not len(self._starts):
            return False
        near = addresses[(addresses >= self._starts[0]) & (addresses <= self._ends[-1])]
        if not len(near):
            return False
        # A return address may lie just past the end.
        inside = near <= self._ends[np.searchsorted(self._starts, near, side="right") - 1]
        if not inside.any():
            return False
        self._starts, self._ends = self._starts[:0], self._ends[:0]
        return True
