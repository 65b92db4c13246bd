"""DuckDB on a Ray cluster: each task runs a query on some of the files with one core and splits its rows by node;
other tasks merge the parts of some of the nodes. Only the final ordering happens here.

Ray retries the tasks of a worker that dies. The workers need exhume[fleet] and the same view of the lake.
"""

import socket
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exhume.fleet.engines import Answer, EngineError
from exhume.fleet.engines.files import LakeFiles
from exhume.fleet.engines.local import connect, merge, ordered, select
from exhume.fleet.queries import Query
from exhume.model.errors import ExhumeError

# A task is worth its startup from LEAST_BYTES of summaries on, and there are several per core, so that a slow one
# delays less. Heavier queries have one task per core: their parts have most rows in common, and have to be merged.
LEAST_BYTES, TASKS_PER_CORE = 16 << 20, 4
# Merge tasks: as many as cores, up to this many; each gets a part of every task's rows.
MOST_MERGES = 32
RETRIES = 4
_PATIENCE_S = 5.0
_REASON = 300
_MISSING = "--engine ray needs Ray: pip install 'exhume[ray]'"


def run_part(query: Query, files: LakeFiles, merges: int) -> list[Any]:
    """A task: returns the files that can't be read, then the query's rows of the others, one table per merge task;
    with 0, the only part, already merged."""
    with connect(1) as connection:
        parts, unread = select(connection, query, files)
        rows = parts[0] if merges and len(parts) == 1 else merge(connection, query, parts)
    return [unread, *split(rows, max(1, merges))]


def run_merge(query: Query, *parts: pa.Table) -> pa.Table:
    """A task: merge the parts of some nodes into one."""
    with connect(1) as connection:
        return merge(connection, query, list(parts))


def split(rows: pa.Table, parts: int) -> list[pa.Table]:
    """Split rows into tables by node, such that every call puts a node's rows into the same table."""
    if parts == 1:
        return [rows]
    nodes = rows["node"].combine_chunks().dictionary_encode()
    names = [zlib.crc32(str(name).encode()) % parts for name in nodes.dictionary.to_pylist()]
    # Rows without a node must stay together too.
    place = np.array([*names, 0])[nodes.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    return [rows.filter(pa.array(place == each)) for each in range(parts)]


class _Pending(NamedTuple):
    """The futures of an answer: unread files of each part, and merged rows."""

    unread: list[Any]
    merged: list[Any]


class RayEngine:
    """A cluster at an address (`auto`: the one on this machine), or a new one on this machine (`local`)."""

    name = "ray"

    def __init__(self, address: str = "auto", cores: int | None = None) -> None:
        """Connect to the cluster. Raises EngineError."""
        try:
            import ray
        except ImportError:
            raise EngineError(_MISSING) from None
        _check_reachable(address)
        self._ray: Any = ray
        self._own = not ray.is_initialized()
        if self._own:
            options: dict[str, Any] = {"num_cpus": cores} if address == "local" else {}
            try:
                ray.init(address=address, logging_level="ERROR", log_to_driver=False, **options)
            except (ConnectionError, RuntimeError, ValueError) as error:
                what_to_do = "start one with ray start; one with a token needs RAY_AUTH_MODE=token, RAY_AUTH_TOKEN"
                raise EngineError(f"no Ray answers at --address {address}: {error}; {what_to_do}") from None
        self._cores = int(ray.cluster_resources().get("CPU", 1))
        self._closing = ExitStack()
        self._connection = self._closing.enter_context(connect(1))
        self._part = ray.remote(num_cpus=1, max_retries=RETRIES)(run_part)
        self._merge = ray.remote(num_cpus=1, max_retries=RETRIES)(run_merge)

    def run(self, asked: Sequence[tuple[Query, LakeFiles]]) -> list[Answer]:
        """Run all parts of all queries as concurrent tasks. Raises EngineError if the cluster fails permanently."""
        pending = self._start(asked)
        try:
            return [
                Answer(
                    ordered(self._connection, query, self._ray.get(each.merged)),
                    tuple(unread for found in self._ray.get(each.unread) for unread in found),
                )
                for (query, _), each in zip(asked, pending, strict=True)
            ]
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, ExhumeError):
                # An error of the lake, raised in a task.
                raise cause from None
            reason = " ".join(str(error).split())[:_REASON]
            raise EngineError(f"Ray failed: {reason}; see ray status, or use --engine local") from None

    def _start(self, asked: Sequence[tuple[Query, LakeFiles]]) -> list[_Pending]:
        merges = min(self._cores, MOST_MERGES)
        parts = [
            list(shares(files, self._cores * (TASKS_PER_CORE if query.weight <= 1 else 1), LEAST_BYTES / query.weight))
            or [files]
            for query, files in asked
        ]
        tasks = [(place, part) for place, several in enumerate(parts) for part in several]
        # Longest first, so that the tasks that finish last are short.
        tasks.sort(key=lambda each: -sum(each[1].sizes) * asked[each[0]][0].weight)
        found: list[list[list[Any]]] = [[] for _ in asked]
        for place, part in tasks:
            split_by = merges if len(parts[place]) > 1 else 0
            task = self._part.options(num_returns=1 + max(1, split_by))
            found[place].append(task.remote(asked[place][0], part, split_by))
        return [
            _Pending(
                [part[0] for part in made],
                made[0][1:]
                if len(made) == 1
                else [self._merge.remote(query, *(part[1 + each] for part in made)) for each in range(merges)],
            )
            for (query, _), made in zip(asked, found, strict=True)
        ]

    def close(self) -> None:
        self._closing.close()
        if self._own:
            self._ray.shutdown()


def _check_reachable(address: str) -> None:
    """Fail early: Ray itself retries for minutes if nothing listens. Raises EngineError."""
    host, colon, port = address.rpartition(":")
    # Other forms (auto, local, ray://HOST:PORT) fail quickly by themselves.
    if not colon or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EngineError(
            f"no Ray answers at --address {address}: {reason.lower()}; start one with ray start"
        ) from None


def shares(files: LakeFiles, most: int, least: float = LEAST_BYTES) -> Iterator[LakeFiles]:
    """Split files into at most `most` parts of similar size, none too small to be worth a task."""
    each = max(least, sum(files.sizes) / max(1, most))
    begin, held = 0, 0
    for end, size in enumerate(files.sizes, 1):
        held += size
        if held >= each or end == len(files):
            yield files.part(begin, end)
            begin, held = end, 0
