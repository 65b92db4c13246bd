"""A lake, a spool and a hub with very many small files: what reads them takes time in proportion and bounded memory,
and the report stays right."""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fleet.fleet_rows import HubClient, batch, summaries
from tests.fleet.lakes import UNTIL, plan, planted

from exhume.fleet.hub import line_of
from exhume.fleet.lake import COMPACT, node_hash
from exhume.fleet.spool import Spool
from exhume.model.isolation import isolated_environment, isolated_python

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

FEW, MANY = 10_200, 102_000
# Of a lake, each file takes half a millisecond or more several times.
LAKES = 6_000, 24_000
# How much more than in proportion to the files the CPU time may grow: other processes share the caches of a core.
NOISE = 1.3


class Cost(NamedTuple):
    """CPU seconds and the most resident memory of a command, and what it printed as JSON."""

    cpu: float
    peak: int
    answer: dict[str, Any]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory, where there is room: removed at the end, not kept as those of pytest."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if shutil.disk_usage(memory).free > 4 << 30 else None) as made:
        yield Path(made)


def exhume(*args: str | Path, codes: tuple[int, ...] = (0,)) -> Cost:
    command = isolated_python("exhume.cli.main", *args, "--json")
    with tempfile.TemporaryFile("w+") as out:
        actions = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1)]
        environment = {name: str(value) for name, value in isolated_environment().items()}
        pid = os.posix_spawn(command[0], [str(each) for each in command], environment, file_actions=actions)
        _, status, used = os.wait4(pid, 0)
        assert os.waitstatus_to_exitcode(status) in codes
        out.seek(0)
        return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, json.load(out))


def lake_of(directory: Path, files: int) -> Path:
    """A lake with a planted cause, in whose last hour each row is a file."""
    lake = planted(directory, plan(files // 60, 1.0, seed=6)).directory
    hour = max((lake / "summaries").glob("date=*/hour=*"))
    [path] = hour.iterdir()
    rows = pq.ParquetFile(path).read()
    assert rows.num_rows == files
    path.unlink()
    nodes = rows["node"].to_pylist()
    minutes = rows["minute"].cast(pa.int64()).to_numpy()
    # One is written; its name and time are replaced in the others, where they are as they are in memory.
    written = pa.BufferOutputStream()
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False}
    pq.write_table(rows.slice(0, 1), written, **plain)
    content = written.getvalue().to_pybytes()
    node, minute = nodes[0].encode(), minutes[0].tobytes()
    assert content.count(node) == content.count(minute) == 1
    for number in range(files):
        changed = content.replace(node, nodes[number].encode()).replace(minute, minutes[number].tobytes())
        (hour / f"{node_hash(nodes[number])}-{number:08d}.parquet").write_bytes(changed)
    assert len({len(each) for each in nodes}) == 1
    return lake


def report(lake: Path) -> Cost:
    until = f"@{UNTIL // 10**9}"
    return exhume("fleet", "report", "--lake", lake, "--since", "1d", "--until", until, "--utc", codes=(1,))


def test_an_hour_of_very_many_small_files(place: Path):
    reports, compactions = [], []
    for files in LAKES:
        lake = lake_of(place / f"lake-{files}", files)
        before = report(lake)
        compactions.append(exhume("fleet", "compact", "--lake", lake))
        assert compactions[-1].answer["files"] >= files and compactions[-1].answer["repeats"] == 0
        [whole] = max((lake / "summaries").glob("date=*/hour=*")).iterdir()
        assert whole.name.startswith(COMPACT) and pq.read_metadata(whole).num_rows == files
        after = report(lake)
        assert before.answer == after.answer and before.answer["separators"]
        assert before.answer["nodes"] == files // 60
        # Without what the same rows take in one file.
        reports.append(Cost(before.cpu - after.cpu, before.peak - after.peak, {}))
        for cost in (reports[-1], compactions[-1]):
            print(f"{files:,} files: {cost.cpu:.1f} s, {cost.peak >> 20} MiB", file=sys.stderr)
        shutil.rmtree(lake)
    for few, many in (reports, compactions):
        assert many.cpu < few.cpu * LAKES[1] / LAKES[0] * NOISE
    # Per file its name and its rows remain.
    assert compactions[1].peak - compactions[0].peak < 3000 * (LAKES[1] - LAKES[0])
    assert reports[1].peak < 512 << 20


def test_a_hub_starts_next_to_very_many_small_files(place: Path):
    """What was left of uploads, batches that were logged and not folded, an hour of the lake that nodes write to."""
    used = []
    for files in (FEW, MANY):
        client = HubClient(place / f"hub-{files}", ())
        minute = summaries()["minute"][0]
        lake = client.lake.directory
        assert lake is not None
        hour = lake / datetime.fromtimestamp(minute / 1e6, UTC).strftime("summaries/date=%Y-%m-%d/hour=%H")
        incoming, log = client.state / "incoming", client.state / "log"
        for directory in (hour, incoming, log):
            directory.mkdir(parents=True)
        for number in range(files):
            (incoming / f"{number:032x}").touch()
            (hour / f"{number:032x}.parquet").touch()
        for number in range(2):
            lines = []
            for node in range(files // 100):
                content = batch(f"node-{node}", number)
                record = {"node": content.node, "spool": content.spool, "seq": number, "digest": f"{node}-{number}"}
                record |= {"received": minute // 1_000_000, "off": None, "tables": content.tables}
                lines.append(line_of(record))
            (log / f"{number + 1:012d}.jsonl").write_bytes(b"".join(lines))
        began = time.process_time()
        client.run(_nothing)
        used.append(time.process_time() - began)
        assert list(incoming.iterdir()) == []
        assert sum(pq.read_metadata(path).num_rows for path in lake.rglob("hub-*")) == files // 100 * 2
        print(f"hub, {files:,} files: {used[-1]:.1f} s", file=sys.stderr)
    assert used[1] < used[0] * MANY / FEW * NOISE


async def _nothing(_: HubClient) -> None:
    pass


def test_a_spool_of_very_many_batches(place: Path):
    """What is added to it and sent from it takes time in proportion."""
    used = []
    for files in (FEW, MANY):
        spool = Spool(place / f"spool-{files}")
        content = batch().encode()
        spool.state.next = files
        spool.commit("node-1", {})
        for number in range(files):
            (spool.directory / f"{number:012d}-1.json.gz").write_bytes(content)
        spool.close()
        began = os.times()
        spool = Spool(place / f"spool-{files}")
        spool.commit("node-1", {"summaries": summaries()})
        entries = spool.entries()
        assert len(entries) == files + 1 and spool.size < 64 << 20
        for entry in entries:
            assert entry.read()
            spool.remove(entry)
        assert spool.entries() == []
        ended = os.times()
        spool.close()
        used.append(ended.user + ended.system - began.user - began.system)
    assert used[1] < used[0] * MANY / FEW * NOISE
