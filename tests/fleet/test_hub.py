"""The hub: what it acknowledges it has, once; everything else gets a clear answer."""

import asyncio
import errno
import gzip
import io
import json
import os
import time
import zipfile

import pytest
from tests.fleet.fleet_rows import SPOOL, HubClient, batch, keys_in, packed, rows_in, summaries, this_minute
from tests.store.conftest import small_disk  # noqa: F401

from exhume.fleet import hub as hub_module
from exhume.fleet import tokens as tokens_module
from exhume.fleet.hub import Hub, Log, line_of, records_in
from exhume.fleet.lake import Lake, bundle_path
from exhume.model.errors import ExhumeError


@pytest.fixture
def client(tmp_path, monkeypatch) -> HubClient:
    monkeypatch.setattr(tokens_module, "LOOK_S", 0.0)
    return HubClient(tmp_path)


def test_a_batch_is_stored_and_sent_again_it_is_known(client):
    async def act(client):
        body = batch(summaries=summaries(3)).encode()
        return [await client.post(body) for _ in range(3)]

    answers = client.run(act)
    assert [status for status, _ in answers] == [200] * 3
    assert [answer["stored"] for _, answer in answers] == [3, 0, 0]
    assert [answer["duplicate"] for _, answer in answers] == [False, True, True]
    rows = rows_in(client.lake)
    assert len(rows) == 3
    assert {row["node"] for row in rows} == {"node-1"}
    assert abs(rows[0]["received_at"].timestamp() - time.time()) < 60
    assert rows[0]["clock_off_s"] is None


def test_the_same_batch_at_the_same_time_is_stored_once(client):
    async def act(client):
        body = batch().encode()
        return await asyncio.gather(*(client.post(body) for _ in range(10)))

    answers = client.run(act)
    assert sorted(answer["stored"] for _, answer in answers) == [0] * 9 + [1]
    assert len(rows_in(client.lake)) == 1


def test_many_requests_share_a_sync(client):
    async def act(client):
        await asyncio.gather(*(client.post(batch(seq=seq, spool=f"{seq:016x}").encode()) for seq in range(200)))
        return client.hub.counts

    counts = client.run(act)
    assert counts.batches == 200
    assert counts.commits < 50


def test_after_a_restart_batches_are_still_known(client):
    body = batch().encode()

    async def send(client):
        return (await client.post(body))[1]["stored"]

    assert [client.run(send) for _ in range(3)] == [1, 0, 0]
    assert len(rows_in(client.lake)) == 1


def test_a_hub_that_was_killed_stores_what_it_had_acknowledged_once(client):
    """The log as a kill leaves it: complete lines, and one that was cut off."""
    first, second = (batch(seq=seq, summaries=summaries(1, this_minute() - seq * 60_000_000)) for seq in (0, 1))

    async def send(client):
        await client.post(first.encode())

    client.run(send)
    log = Log(client.state / "log")
    record = {"node": "node-1", "spool": SPOOL, "seq": 1, "digest": "x", "received": 1, "off": None}
    log.append([line_of({**record, "tables": second.tables})])
    log.append([line_of({**record, "seq": 2, "tables": second.tables})[:-20]])
    log.close()

    async def look(client):
        return client.hub.marks.last("node-1", SPOOL)

    assert client.run(look) == (1, "x")
    assert len(keys_in(client.lake)) == 2
    assert client.run(look) == (1, "x")
    assert len(keys_in(client.lake)) == 2


def test_folding_again_after_a_kill_replaces_what_was_written(client, monkeypatch):
    class Killed(BaseException):
        pass

    async def send(client):
        await client.post(batch(summaries=summaries(5)).encode())

    def die(self, hub=None):
        raise Killed

    with monkeypatch.context() as patched:
        original = Hub._save_state
        patched.setattr(Hub, "_save_state", lambda self, hub=None: original(self, hub) if hub else die(self))
        with pytest.raises(Killed):
            client.run(send)
    assert len(rows_in(client.lake)) == 5, "killed after it was written, before that was noted"
    client.run(lambda client: asyncio.sleep(0))
    assert len(rows_in(client.lake)) == 5
    assert list((client.state / "log").glob("*.jsonl")) != []


def test_a_lake_that_is_away_loses_nothing(client, monkeypatch, caplog):
    def away(self, *_):
        raise hub_module.LakeError("the lake is away")

    async def send(client):
        status, _ = await client.post(batch().encode())
        # It is tried again and again meanwhile.
        await client.hub.fold()
        await client.hub.fold()
        return status

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "write_new", away)
        assert client.run(send) == 200
    assert rows_in(client.lake) == []
    assert "away" in caplog.text
    client.run(lambda client: asyncio.sleep(0))
    assert len(rows_in(client.lake)) == 1


def test_numbers_that_go_back_are_answered_with_a_conflict(client):
    async def act(client):
        await client.post(batch(seq=5).encode())
        return [
            (await client.post(batch(seq=4).encode()))[0],
            (await client.post(batch(seq=5, summaries=summaries(2)).encode()))[0],
            (await client.post(batch(seq=9).encode()))[0],
            (await client.post(batch(seq=0, spool="f" * 16).encode()))[0],
        ]

    assert client.run(act) == [409, 409, 200, 200]


def refusals() -> dict[str, tuple[int, bytes, dict]]:
    day = 86_400_000_000
    return {
        "no token": (401, batch().encode(), {"authorization": ""}),
        "a wrong token": (401, batch().encode(), {"authorization": "Bearer exf_wrong"}),
        "another node": (403, batch(node="node-2").encode(), {}),
        "garbage": (400, os.urandom(1000), {}),
        "not a batch": (422, packed({"hello": 1}), {}),
        "a later version": (426, packed({"version": 2}), {}),
        "rows of next week": (422, batch(summaries=summaries(1, this_minute() + 7 * day)).encode(), {}),
        "rows of last year": (422, batch(summaries=summaries(1, this_minute() - 365 * day)).encode(), {}),
        "a clock that was never set": (422, batch().encode(), {"x_exhume_sent_at": "1000000"}),
        "100 MB": (413, b"", {"content_length": str(100 << 20)}),
        "more than it says": (413, bytes((4 << 20) + 1), {"content_length": "7"}),
    }


@pytest.mark.parametrize("what", refusals())
def test_what_is_not_stored_gets_a_clear_answer(client, what):
    wanted, body, headers = refusals()[what]

    async def act(client):
        return await client.post(body, **headers)

    status, answer = client.run(act)
    assert status == wanted
    assert answer["error"]
    assert rows_in(client.lake) == []


def test_a_revoked_token_is_refused_while_the_hub_runs(client):
    async def act(client):
        before, _ = await client.post(batch().encode())
        client.hub.tokens.revoke("node-1")
        after, _ = await client.post(batch(seq=1).encode())
        return before, after

    assert client.run(act) == (200, 401)


@pytest.mark.parametrize(("off_s", "flagged"), [(3600, True), (-3600, True), (30, False)])
def test_a_clock_that_is_off_is_stored_and_flagged(client, off_s, flagged):
    async def act(client):
        columns = summaries(1, this_minute() + off_s * 1_000_000)
        sent = str(int((time.time() + off_s) * 1_000_000))
        return await client.post(batch(summaries=columns).encode(), x_exhume_sent_at=sent)

    status, answer = client.run(act)
    assert status == 200
    (row,) = rows_in(client.lake)
    assert (row["clock_off_s"] is not None) is flagged
    if flagged:
        assert row["clock_off_s"] == pytest.approx(off_s, abs=5)
        assert answer["clock_off_s"] == pytest.approx(off_s, abs=5)


@pytest.mark.parametrize(
    ("bundle", "wanted"),
    [
        (None, 200),
        (bundle_path("node-1", "a" * 16), 200),
        (bundle_path("node-2", "a" * 16), 403),
        (bundle_path("node-1", "b" * 16), 403),
        ("../../etc/passwd", 403),
    ],
)
def test_an_incident_can_not_claim_the_bundle_of_another(client, bundle, wanted):
    columns = {"at": [this_minute()], "id": ["a" * 16], "bundle": [bundle]}

    async def act(client):
        return (await client.post(batch(incidents=columns).encode()))[0]

    assert client.run(act) == wanted
    assert len(rows_in(client.lake, "incidents")) == (wanted == 200)


def test_columns_that_the_hub_does_not_know_are_named_and_left_out(client):
    async def act(client):
        return await client.post(batch(summaries=summaries(1, warp_factor=[9])).encode())

    status, answer = client.run(act)
    assert (status, answer["ignored"]) == (200, ["summaries.warp_factor"])


def test_a_node_that_sends_too_much_is_slowed_down_and_others_are_not(client, monkeypatch):
    monkeypatch.setattr(hub_module, "REQUESTS_AT_ONCE", 20)

    async def act(client):
        flood = [(await client.post(batch(seq=seq).encode()))[0] for seq in range(100)]
        other, _ = await client.post(batch(node="node-2").encode(), node="node-2")
        return flood, other

    flood, other = client.run(act)
    assert flood.count(200) >= 20
    assert flood.count(429) >= 50
    assert other == 200


def files_of(lake: Lake) -> list[str]:
    return [str(path) for path in lake.directory.rglob("*.parquet")]


def test_a_million_tiny_batches_make_no_more_files_than_there_are_folds(client):
    """Of now: however many there are, a fold makes one file of each table and hour."""

    async def act(client):
        spools = [f"{number:016x}" for number in range(20)]
        for fold in range(3):
            for seq in range(fold * 30, fold * 30 + 30):
                bodies = [batch(seq=seq, spool=spool).encode() for spool in spools]
                answers = await asyncio.gather(*(client.post(body) for body in bodies))
                assert {status for status, _ in answers} == {200}
            await client.hub.fold()

    client.run(act)
    assert len(rows_in(client.lake)) == 3 * 30 * 20
    # The minute before may be of the hour before.
    assert len(files_of(client.lake)) <= 3 * 2


def test_a_node_can_not_spread_its_batches_over_all_partitions(client, monkeypatch):
    """A row in every hour of two months would be a file in each, with every fold."""
    monkeypatch.setattr(hub_module, "LATE_AT_ONCE", 200)
    now, hour = this_minute(), 3_600_000_000

    def spread(seq: int, hours: int) -> bytes:
        columns = {"minute": [now - number * hour for number in range(hours)], "boot_id": ["b"] * hours}
        return batch(seq=seq, summaries=columns).encode()

    async def act(client):
        statuses = []
        for seq in range(12):
            # By a clock that it says is another one each time, too.
            sent = str(int(time.time() * 1e6) + seq * 24 * hour)
            statuses.append((await client.post(spread(seq, 50), x_exhume_sent_at=sent))[0])
            await client.hub.fold()
        own, _ = await client.post(batch(seq=99).encode())
        return statuses, own

    statuses, own = client.run(act)
    assert statuses.count(200) == 4 and statuses.count(429) == 8
    assert len(files_of(client.lake)) <= 4 * 50 + 2
    # What is of now is taken all the same.
    assert own == 200


def test_what_a_node_writes_is_bounded_in_bytes(client, monkeypatch):
    monkeypatch.setattr(hub_module, "MIB_AT_ONCE", 4)
    # Compressed it is next to nothing.
    columns = {"at": [this_minute()] * 5000, "key": ["k"] * 5000, "value": ["v" * 190] * 5000}

    async def act(client):
        bodies = [batch(seq=seq, attributes=columns).encode() for seq in range(8)]
        assert max(map(len, bodies)) < 64 << 10
        statuses = [(await client.post(body))[0] for body in bodies]
        other, _ = await client.post(batch(node="node-2").encode(), node="node-2")
        return statuses, other, sum(path.stat().st_size for path in (client.state / "log").iterdir())

    statuses, other, logged = client.run(act)
    assert statuses[:2] == [200, 200] and statuses.count(429) >= 4
    assert other == 200
    assert 2 << 20 < logged < 5 << 20


def test_what_unpacks_to_much_is_refused_and_rare(client, monkeypatch):
    """Some kilobytes that become gigabytes of values: no request waits for them, and few are looked at."""
    monkeypatch.setattr(hub_module, "LARGE_AT_ONCE", 3)
    bomb = gzip.compress(b"[" + b"{}," * 6_000_000 + b"{}]", 1)
    assert len(bomb) < 1 << 20

    async def act(client):
        statuses = [(await client.post(bomb))[0] for _ in range(8)]
        own, _ = await client.post(batch().encode())
        # A large one that is in order is taken of others.
        columns = {"at": [this_minute()] * 6000, "key": ["k" * 100] * 6000, "value": ["v" * 100] * 6000}
        body = batch(node="node-2", attributes=columns).encode()
        return statuses, own, await client.post(body, node="node-2")

    statuses, own, (other, answer) = client.run(act)
    assert statuses == [422] * 3 + [429] * 5
    assert own == 200
    assert (other, answer["stored"]) == (200, 6000)


def test_errors_of_the_disk_are_answered_and_nothing_half_written_stays(client, monkeypatch):
    async def act(client):
        before, _ = await client.post(batch(seq=0).encode())
        with monkeypatch.context() as patched:

            def full(fd, data):
                original(fd, bytes(data)[:10])
                raise OSError(errno.ENOSPC, "No space left on device")

            original = os.write
            patched.setattr(hub_module.os, "write", full)
            during, answer = await client.post(batch(seq=1).encode())
        after, _ = await client.post(batch(seq=1).encode())
        return before, during, answer, after

    before, during, answer, after = client.run(act)
    assert (before, during, after) == (200, 507, 200)
    assert "full" in answer["error"]
    assert len(rows_in(client.lake)) == 2


@pytest.mark.root
def test_a_full_disk_is_answered_with_507_until_there_is_room(small_disk, monkeypatch):  # noqa: F811
    client = HubClient(small_disk)

    async def act(client):
        stored, statuses, seq = [], [], 0
        ballast = small_disk / "ballast"
        while 507 not in statuses and seq < 3000:
            body = batch(
                seq=seq, summaries=summaries(20, this_minute() - (seq + 1) * 20 * 60_000_000 % 10**13)
            ).encode()
            status, _ = await client.post(body)
            statuses.append(status)
            stored += [seq] if status == 200 else []
            seq += status == 200
            if seq == 20:
                ballast.write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096 - (64 << 10)))
        ballast.unlink()
        status, _ = await client.post(batch(seq=seq).encode())
        return stored, statuses[-1], status

    stored, full, after = client.run(act)
    assert (full, after) == (507, 200)
    assert len(rows_in(client.lake)) == 20 * len(stored) + 1


def zipped(*names: str, content: bytes = b"") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


TABLE = "recording/20260714T120000250Z_1f0c5a9e_86400250_60000/cpu.parquet"


def test_a_bundle_is_stored_where_its_node_is(client):
    content = zipped(TABLE, "report.html", content=b"x")

    async def act(client):
        path = f"/v1/bundles/{'a' * 16}"
        return [await client.post(content, path=path) for _ in range(2)]

    answers = client.run(act)
    assert [(status, answer["duplicate"]) for status, answer in answers] == [(200, False), (200, True)]
    assert (client.lake.directory / bundle_path("node-1", "a" * 16)).read_bytes() == content
    assert list((client.state / "incoming").iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        zipped(TABLE, "../../etc/cron.d/x"),
        zipped(TABLE, "/etc/passwd"),
        zipped(TABLE, "..\\..\\x"),
        zipped(TABLE, "C:/x"),
        zipped("report.html"),
        zipped(TABLE)[:-5],
        b"no zip at all",
        b"",
    ],
)
def test_a_bundle_that_is_none_or_leads_elsewhere_is_refused(client, content):
    async def act(client):
        return await client.post(content, path=f"/v1/bundles/{'a' * 16}")

    status, answer = client.run(act)
    assert status == 422
    assert answer["error"]
    assert not (client.lake.directory / "bundles").exists()
    assert list((client.state / "incoming").iterdir()) == []


def test_a_million_small_files_are_refused(client):
    content = zipped(TABLE, *(f"a/{number}" for number in range(20_100)))

    async def act(client):
        return (await client.post(content, path=f"/v1/bundles/{'a' * 16}"))[0]

    assert client.run(act) == 422


def test_bundles_of_a_node_are_bounded(client, monkeypatch):
    monkeypatch.setattr(hub_module, "BUNDLES_AT_ONCE", 5)
    content = zipped(TABLE)

    async def act(client):
        return [(await client.post(content, path=f"/v1/bundles/{number:016x}"))[0] for number in range(8)]

    assert client.run(act) == [200] * 5 + [429] * 3


@pytest.mark.parametrize("name", ["x", "a" * 17, "..%2f..%2fetc", "A" * 16])
def test_the_id_of_a_bundle_is_no_path(client, name):
    async def act(client):
        return (await client.post(zipped(TABLE), path=f"/v1/bundles/{name}"))[0]

    assert client.run(act) == 422


def test_two_hubs_do_not_share_a_state(client):
    async def act(client):
        with pytest.raises(ExhumeError, match="another hub"):
            Hub(client.lake, client.state)

    client.run(act)


def test_nothing_can_be_asked_of_the_hub_but_whether_it_lives(client):
    async def act(client):
        app = client._app
        return {(route.path, tuple(sorted(route.methods - {"HEAD"}))) for route in app.routes}

    assert client.run(act) == {
        ("/v1/batches", ("POST",)),
        ("/v1/bundles/{incident}", ("POST",)),
        ("/v1/health", ("GET",)),
    }


def test_a_damaged_line_ends_a_log(tmp_path):
    good = line_of({"seq": 1})
    path = tmp_path / "log"
    for damage in (b"", b"x", good[:-1], b"00000000 {}\n", b"\n"):
        path.write_bytes(good + damage + (good if damage else b""))
        assert [record["seq"] for record in records_in(path)][:1] == [1]
        assert len(list(records_in(path))) == 1
    assert json.loads(good[9:])["seq"] == 1


def test_files_of_the_lake_never_get_the_name_of_earlier_ones(client):
    """Logs are removed once they are folded; their numbers go on."""

    def send(seq):
        async def act(client):
            await client.post(batch(seq=seq, summaries=summaries(1, this_minute() - seq * 60_000_000)).encode())

        return act

    for seq in range(4):
        client.run(send(seq))
        assert len(keys_in(client.lake)) == seq + 1
