"""The lake in an object store: what holds for a directory holds there."""

import json
import socket
from datetime import UTC, datetime, timedelta

import pyarrow.fs
import pytest
from starlette.testclient import TestClient
from tests.coroutines import in_thread
from tests.fleet.fleet_rows import batch, summaries
from tests.fleet.test_hub import TABLE, zipped
from tests.fleet.test_lake import FIRST, FIRST_US, LATER, minutes
from tests.fleet.test_push import NEVER, directory, pusher, recorded  # noqa: F401
from tests.present.fleet.conftest import HOST, bundle, static  # noqa: F401
from tests.present.fleet.small_lake import Lake as SmallLake
from tests.present.fleet.small_lake import write_lake

from exhume.fleet.hub import Hub, Refused, default_state
from exhume.fleet.lake import Lake, LakeError, bundle_path
from exhume.fleet.push import LakeTarget
from exhume.fleet.schema import SUMMARIES
from exhume.model.errors import UsageError
from exhume.model.settings import S3_ENDPOINT
from exhume.present.fleet import report_program
from exhume.present.fleet.app import create_app
from exhume.present.web.guard import Rules

pytestmark = pytest.mark.slow


def rows(lake: Lake) -> list[tuple[str, datetime]]:
    found = []
    for partition in lake.partitions(SUMMARIES):
        for name, _ in lake.files(partition.path):
            table = lake.read(f"{partition.path}/{name}", ["node", "minute"])
            found += zip(table.column("node").to_pylist(), table.column("minute").to_pylist(), strict=True)
    return sorted(found)


def test_a_lake_in_an_object_store_is_written_compacted_and_pruned(s3, tmp_path):
    lake = Lake.open("s3://bucket/compacted", s3)
    assert lake.directory is None
    for number in range(4):
        for _ in range(2):
            lake.write(SUMMARIES, minutes("node-1", 15, FIRST_US), f"file-{number}")
    assert len(lake.partitions(SUMMARIES)) == 2
    done = lake.compact(LATER)
    assert (done.partitions, done.files, done.rows) == (2, 8, 15)
    assert [name[:8] for name, _ in lake.files(lake.partitions(SUMMARIES)[0].path)] == ["compact-"]
    assert len(rows(lake)) == 15
    source = tmp_path / "bundle"
    source.write_bytes(b"x" * 3_000_000)
    lake.put(bundle_path("node-1", "a" * 16), source)
    assert lake.has(bundle_path("node-1", "a" * 16))
    assert lake.prune(FIRST + timedelta(hours=1)) == 1
    assert {minute.hour for _, minute in rows(lake)} == {0}
    assert lake.prune(datetime.now(UTC) + timedelta(days=1)) == 2
    assert rows(lake) == []


def test_a_recording_is_pushed_to_an_object_store(s3, directory, tmp_path):  # noqa: F811
    lake = Lake.open("s3://bucket/pushed", s3)
    one = pusher(directory, tmp_path, LakeTarget(lake, "node-1"))
    one.collect(NEVER)
    entries = one.spool.entries()
    assert one.send(NEVER).problem == ""
    # An answer that got lost: the same again is the same object.
    assert LakeTarget(lake, "node-1").deliver(entries[0]).retry, "it was removed from the spool"
    assert len(rows(lake)) == 5


def test_an_object_store_that_is_away_keeps_everything_in_the_spool(directory, tmp_path):  # noqa: F811
    lake = Lake.open("s3://bucket/lake", "http://127.0.0.1:9")
    one = pusher(directory, tmp_path, LakeTarget(lake, "node-1"))
    one.collect(NEVER)
    sent = one.send(NEVER)
    assert sent.problem
    assert len(one.spool.entries()) == 1
    with pytest.raises(LakeError):
        lake.write(SUMMARIES, minutes("node-1", 1), "a")


def test_a_hub_in_front_of_an_object_store_needs_a_directory_of_its_own(s3, tmp_path):
    lake = Lake.open("s3://bucket/hub", s3)
    with pytest.raises(UsageError):
        default_state(lake)
    hub = Hub(lake, tmp_path)

    async def whole():
        async with hub.running():
            await hub.take("node-1", batch(summaries=summaries(3)).encode(), None)

    in_thread(whole)
    assert len(rows(lake)) == 3


def test_a_store_that_comes_back_gets_what_the_hub_acknowledged_meanwhile(s3, tmp_path):
    """Once, though the hub tried to fold it before, and was restarted."""
    from moto.server import ThreadedMotoServer

    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    lake, stored = Lake.open("s3://bucket/late", f"http://127.0.0.1:{port}"), Lake.open("s3://bucket/late", s3)
    packed = tmp_path / "bundle"
    packed.write_bytes(zipped(TABLE))

    async def while_it_is_away(seq: int) -> None:
        hub = Hub(lake, tmp_path / "state")
        async with hub.running():
            answer = await hub.take("node-1", batch(seq=seq, summaries=summaries(3)).encode(), None)
            assert answer["stored"] == 3
            await hub.fold()
            with pytest.raises(Refused) as refused:
                await hub.take_bundle("node-1", "a" * 16, packed)
            assert refused.value.status == 503

    async def when_it_is_back() -> None:
        async with Hub(lake, tmp_path / "state").running():
            pass

    for seq in range(2):
        in_thread(lambda seq=seq: while_it_is_away(seq))
    assert rows(stored) == []
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        for _ in range(2):
            in_thread(when_it_is_back)
        assert len(rows(lake)) == 6
    finally:
        server.stop()


@pytest.fixture
def copied(s3, bundle, tmp_path, monkeypatch) -> SmallLake:  # noqa: F811
    """A lake in a directory, and the same at s3://bucket/served."""
    near = write_lake(tmp_path / "lake", bundle)
    store = pyarrow.fs.S3FileSystem(endpoint_override=s3.partition("://")[2], scheme="http")
    pyarrow.fs.copy_files(str(near.directory), "bucket/served", destination_filesystem=store)
    monkeypatch.setenv(S3_ENDPOINT.variable, s3)
    monkeypatch.setattr("os.nice", lambda step: step)
    return near


def test_the_page_reads_an_object_store_like_a_directory(copied, static, capsys):  # noqa: F811
    node, incident = copied.with_bundle
    at = copied.hour(1)
    paths = (f"/api/cells?at={at}", f"/api/attributes?at={at}", f"/api/node?name={node}&at={at}", "/api/incidents")
    answers, reports = [], []
    for lake in (copied.directory, "s3://bucket/served"):
        with TestClient(create_app(lake, Rules(), static), base_url=HOST) as client:
            known = client.get("/api/fleet").json()
            page = f"/node/{node}/incident/{incident}/api/recording"
            answers.append([known["hours"], *(client.get(path).content for path in paths), client.get(page).json()])
        assert report_program.main([str(lake)]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert reports[0] == reports[1] and reports[0]["nodes"] == 30


def test_a_page_whose_store_is_away_says_so(static, monkeypatch):  # noqa: F811
    monkeypatch.setenv(S3_ENDPOINT.variable, "http://127.0.0.1:9")
    with TestClient(create_app("s3://bucket/served", Rules(), static), base_url=HOST) as client:
        answer = client.get("/api/fleet")
    assert answer.status_code == 500 and "s3://bucket/served can't be read" in answer.json()["detail"]
