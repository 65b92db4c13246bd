"""Split samples by core or by thread: one track each, with its samples in order of time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.store.read.profile import SampleTable, StackProfile
from exhume.store.read.stacks import FrameTable, Ints, concat_ranges, unique_inverse

CORE, THREAD = "core", "thread"
BY = (CORE, THREAD)
# Half a period of the usual rate; sample times are whole milliseconds.
SLACK_US = 5000
_MICROSECOND = 1000


@dataclass(frozen=True, slots=True)
class Track:
    """A core, or a thread with its process; `rows` are the indices of its samples."""

    name: str
    rows: Ints
    cpu: int | None = None
    pid: int | None = None
    tid: int | None = None

    @property
    def labels(self) -> tuple[tuple[str, int], ...]:
        """The numeric labels that identify the track."""
        named = (("cpu", self.cpu), ("pid", self.pid), ("tid", self.tid))
        return tuple((name, value) for name, value in named if value is not None)


@dataclass(frozen=True, slots=True)
class Part:
    """The summed stacks of one track."""

    track: Track
    profile: StackProfile


def tracks(samples: SampleTable, by: str) -> list[Track]:
    """Return one track per core, in order, or per thread, by process and thread."""
    if by == CORE:
        cores = np.unique(samples.cpus).tolist()
        return [Track(f"core {cpu}", np.flatnonzero(samples.cpus == cpu), cpu=cpu) for cpu in cores]
    order = np.lexsort((np.arange(len(samples)), samples.tids, samples.pids))
    pids, tids = samples.pids[order], samples.tids[order]
    first = np.flatnonzero(np.diff(pids, prepend=-1) | np.diff(tids, prepend=-1))
    found = []
    for rows in np.split(order, first[1:]) if len(order) else []:
        # A thread may have changed its name: use the last one.
        comm = samples.comms[int(samples.comm_index[rows[-1]])]
        pid, tid = int(samples.pids[rows[0]]), int(samples.tids[rows[0]])
        found.append(Track(f"{comm} {tid}", rows, pid=pid, tid=tid))
    return found


def parts(samples: SampleTable, by: str) -> list[Part]:
    """Sum the stacks of each track."""
    return [Part(track, _summed(samples, track.rows)) for track in tracks(samples, by)]


def _summed(samples: SampleTable, rows: Ints) -> StackProfile:
    """Sum the stacks of some samples, with only the thread names in use, as a node has thousands of threads."""
    pairs, members = unique_inverse(samples.comm_index[rows] * len(samples.stacks) + samples.stack_index[rows])
    comms, comm_index = unique_inverse(pairs // max(1, len(samples.stacks)))
    stacks, stack_index = unique_inverse(pairs % max(1, len(samples.stacks)))
    starts = samples.stack_offsets[stacks]
    lengths = samples.stack_offsets[stacks + 1] - starts
    frames, stack_frames = unique_inverse(samples.stack_frames[concat_ranges(starts, lengths)])
    columns = (samples.frames.kinds, samples.frames.modules, samples.frames.names)
    return StackProfile(
        [samples.comms[each] for each in comms.tolist()],
        FrameTable(*([column[each] for each in frames.tolist()] for column in columns)),
        np.concatenate(([0], np.cumsum(lengths))),
        stack_frames,
        comm_index,
        stack_index,
        np.bincount(members, minlength=len(pairs)),
        np.bincount(members, samples.weights_us[rows], len(pairs)).astype(np.int64),
    )


def runs(samples: SampleTable, track: Track, since: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the samples of a track as (begin, end, row, stack) on a time axis that begins at `since`, in microseconds.

    Each sample lasts for the CPU time that it stands for. It begins when it was taken; if the sample before it ends
    later, or earlier by no more than the slack, it begins at that end instead: samples of a busy core follow each other
    without gaps."""
    taken: npt.NDArray[np.int64] = (samples.walls[track.rows] - since) // _MICROSECOND
    columns = (taken, samples.weights_us[track.rows], track.rows, samples.stack_index[track.rows])
    now = 0
    for at, weight, row, stack in zip(*(column.tolist() for column in columns), strict=True):
        begin = now if now and at - now <= SLACK_US else max(at, now)
        now = begin + weight
        yield begin, now, row, stack
