"""From thirty recordings to one sentence: every node pushes to a real hub with a token of its own, and the report of
the lake names the agent, the image and the zone. Nodes of other versions and one whose clock is an hour off are among
them, and whatever else is sent changes nothing."""

import io
import json
import os
import socket
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from tests.cli.conftest import exhume  # noqa: F401
from tests.fleet.fleet_rows import rows_in
from tests.system.fleet.hub_process import HubProcess
from tests.system.fleet.recorded_nodes import (
    AGENT,
    BOOTSTRAP,
    SECONDS,
    SICK_IMAGE,
    SICK_ZONE,
    UNIT,
    RecordedNode,
    thirty_nodes,
)

from exhume.cli import exit_codes
from exhume.fleet import push
from exhume.fleet.batch import Batch
from exhume.fleet.schema import TABLES
from exhume.fleet.tokens import Tokens
from exhume.model.clock import NANOS
from exhume.notify.child import ChildResult

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

OLDER, NEWER, WRONG_CLOCK = "node-11", "node-20", "node-21"
CLOCK_OFF_S = -3600
MINUTES = SECONDS // 60


@dataclass(frozen=True)
class Fleet:
    lake: Path
    state: Path
    hub: HubProcess
    nodes: list[RecordedNode]
    directory: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.hub.port}"

    def push(self, run, node: str, token: Path, *more: str):
        args = ("--dir", str(self.directory / node), "--push-token-file", str(token), "--since", "1d", "--final")
        return run("fleet", "push", self.url, *args, *more, check=False)

    def token(self, node: str) -> Path:
        return self.directory / f"{node}.token"


def encoded_by_an_older_version(batch: Batch) -> bytes:
    """Without columns that came later."""
    tables = {
        name: {column: columns[column] for column in columns if column in (*TABLES[name].required, "uptime_s", "value")}
        for name, columns in batch.tables.items()
    }
    return encode(Batch(batch.node, batch.spool, batch.seq, tables))


def encoded_by_a_newer_version(batch: Batch) -> bytes:
    """With columns and a table that this version does not know."""
    tables = {
        name: {**columns, "warp": [9] * len(columns[TABLES[name].time])} for name, columns in batch.tables.items()
    }
    return encode(Batch(batch.node, batch.spool, batch.seq, {**tables, "gpus": {"at": [1]}}))


encode, right_clock = Batch.encode, time.time_ns


def wrong_clock() -> int:
    return right_clock() + CLOCK_OFF_S * NANOS


@pytest.fixture(scope="module")
def fleet(tmp_path_factory, exhume) -> Iterator[Fleet]:  # noqa: F811
    directory = tmp_path_factory.mktemp("fleet")
    lake, state = directory / "lake", directory / "state"
    # Up to the last full minute.
    wall = (int(time.time()) // 60 - MINUTES) * 60 * NANOS
    nodes = list(thirty_nodes())
    tokens = Tokens(state)
    hub = HubProcess(str(lake), state, fold="500ms")
    made = Fleet(lake, state, hub, nodes, directory)
    for node in nodes:
        made.token(node.name).write_text(tokens.add(node.name))
    hub.start()

    def diagnosed_here(command, given, **_):
        """What `exhume export bundle` does in a child, without the second that a process takes to start."""
        args = command[command.index("exhume.cli.main") + 1 :]
        done = exhume(*map(str, args), check=False)
        return ChildResult(done.returncode, b"", done.stderr)

    with ExitStack() as stack:
        stack.callback(hub.stop)
        diagnosed = False
        for node in nodes:
            off = CLOCK_OFF_S if node.name == WRONG_CLOCK else 0
            node.write(directory / node.name, wall + off * NANOS)
            with ExitStack() as around:
                # The first one as it is on a node.
                if not node.sick or diagnosed:
                    around.enter_context(mock.patch.object(push, "run_child", diagnosed_here))
                diagnosed |= node.sick
                version = {OLDER: encoded_by_an_older_version, NEWER: encoded_by_a_newer_version}.get(node.name)
                if version is not None:
                    around.enter_context(mock.patch.object(Batch, "encode", version))
                if off:
                    around.enter_context(mock.patch.object(push.time, "time_ns", wrong_clock))
                done = made.push(exhume, node.name, made.token(node.name))
            assert done.returncode == exit_codes.OK, done.stderr
        settle(made)
        yield made


def settle(fleet: Fleet) -> None:
    """Wait until the hub has folded everything."""
    deadline = time.monotonic() + 20
    while len(rows_in(fleet.lake)) < MINUTES * len(fleet.nodes):
        assert time.monotonic() < deadline, "the hub does not fold"
        time.sleep(0.05)


def report(run, fleet: Fleet, *more: str) -> str:
    done = run("fleet", "report", "--lake", str(fleet.lake), "--since", "1d", *more, check=False)
    assert done.returncode == exit_codes.FINDINGS, done.stderr
    return done.stdout


def test_from_the_pushes_of_thirty_nodes_to_the_agent_the_image_and_the_zone(fleet, exhume):  # noqa: F811
    text = " ".join(report(exhume, fleet).split())
    assert f"zombie-memcgs of {AGENT} on image {SICK_IMAGE} in zone {SICK_ZONE}" in text
    found = json.loads(report(exhume, fleet, "--json"))
    sick = [node.name for node in fleet.nodes if node.sick]
    strays = [node.name for node in fleet.nodes if node.strays]
    assert (found["nodes"], found["sick"], sorted(found["sick_nodes"])) == (30, 11, sorted([*sick, *strays]))
    first = found["separators"][0]
    assert [(each["key"], each["value"]) for each in first["conditions"]] == [
        ("image", SICK_IMAGE),
        ("zone", SICK_ZONE),
    ]
    assert (first["nodes"], first["sick"], first["others"], first["other_sick"]) == (10, 10, 20, 0)
    assert first["q"] < 0.01 and first["risk_ratio"]["low"] > 1.2
    # The state of its unit has the same nodes, and is said to.
    same = [(each["key"], each["value"]) for group in first["same_nodes"] for each in group]
    assert (f"unit.{UNIT}", "failed/crash-loop") in same
    assert (found["common"]["cause"], found["common"]["leaker"]) == ("zombie-memcgs", AGENT)
    assert found["common"]["nodes"] == 10


def test_a_sick_node_and_one_of_its_image_elsewhere_differ_in_their_agent(fleet, exhume):  # noqa: F811
    sick = next(node for node in fleet.nodes if node.sick)
    other = next(node for node in fleet.nodes if node.has_agent and not node.sick)
    done = exhume("compare", *(str(fleet.directory / node.name) for node in (sick, other)), "--json", check=False)
    assert done.returncode == exit_codes.FINDINGS, done.stderr
    found = json.loads(done.stdout)
    a, b = found["a"]["label"], found["b"]["label"]
    assert found["sentence"] == f"{UNIT} crash-loops on {a}; on {b} it never started, because {BOOTSTRAP} failed"


def test_every_minute_is_there_once_of_every_version_and_a_wrong_clock_is_flagged(fleet):
    rows = rows_in(fleet.lake)
    keys = [(row["node"], row["minute"], row["boot_id"]) for row in rows]
    assert len(keys) == len(set(keys)) == MINUTES * 30
    by_node = {row["node"]: row for row in rows}
    assert by_node[OLDER]["cores"] is None and by_node[NEWER]["cores"] == 2
    assert by_node[WRONG_CLOCK]["clock_off_s"] == pytest.approx(CLOCK_OFF_S, abs=30)
    assert {node for node, row in by_node.items() if row["clock_off_s"] is not None} == {WRONG_CLOCK}
    incidents = rows_in(fleet.lake, "incidents")
    assert len(incidents) == 11 and all((fleet.lake / row["bundle"]).is_file() for row in incidents)


def test_a_node_that_has_another_node_s_token_can_not_write_its_own_rows_or_that_node_s(fleet, exhume):  # noqa: F811
    before = len(rows_in(fleet.lake))
    done = fleet.push(exhume, "node-12", fleet.token("node-13"), "--spool", str(fleet.directory / "foreign"))
    assert done.returncode == exit_codes.ERROR
    assert "403" in done.stderr and "node-13" in done.stderr
    assert len(list((fleet.directory / "foreign").glob("*.json.gz"))) == 1, "it is kept"
    assert len(rows_in(fleet.lake)) == before


def test_a_revoked_token_stores_nothing_and_costs_the_node_nothing(fleet, exhume):  # noqa: F811
    Tokens(fleet.state).revoke("node-14")
    # A hub looks once a second whether one was revoked.
    time.sleep(1.2)
    spool = fleet.directory / "revoked"
    done = fleet.push(exhume, "node-14", fleet.token("node-14"), "--spool", str(spool))
    assert done.returncode == exit_codes.ERROR and "401" in done.stderr
    fleet.token("node-14").write_text(Tokens(fleet.state).add("node-14"))
    time.sleep(1.2)
    assert fleet.push(exhume, "node-14", fleet.token("node-14"), "--spool", str(spool)).returncode == exit_codes.OK
    assert list(spool.glob("*.json.gz")) == []


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def post_endless(fleet: Fleet, path: str, *, chunked: bool) -> int:
    """Send 100 MB, in chunks without saying so first; returns the status."""
    token = fleet.token("node-15").read_text()
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {100 << 20}"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{framing}\r\n\r\n"
    piece = os.urandom(1 << 20)
    piece = b"100000\r\n" + piece + b"\r\n" if chunked else piece
    with socket.create_connection(("127.0.0.1", fleet.hub.port), timeout=20) as connection:
        connection.sendall(head.encode())
        try:
            for _ in range(100):
                connection.sendall(piece)
        except OSError:
            # It hung up; what it said before that is there.
            pass
        try:
            answer = connection.recv(4096)
        except OSError:
            return 0
    return int(answer.split()[1]) if answer else 0


def traversing() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("recording/20260714T120000250Z_1f0c5a9e_86400250_60000/cpu.parquet", b"")
        archive.writestr("../../../../tmp/planted", b"x")
    return stream.getvalue()


def test_garbage_floods_and_traversing_bundles_change_neither_the_hub_nor_the_report(fleet, exhume):  # noqa: F811
    before, memory = json.loads(report(exhume, fleet, "--json")), resident_kb(fleet.hub.pid)
    authorization = {"Authorization": f"Bearer {fleet.token('node-15').read_text()}"}

    def posted(path: str, body: bytes) -> int:
        connection = fleet.hub.connect()
        connection.request("POST", path, body, authorization)
        answer = connection.getresponse()
        assert "error" in json.loads(answer.read())
        connection.close()
        return answer.status

    assert {posted("/v1/batches", os.urandom(size)) for size in (1, 1000, 1 << 20)} == {400}
    assert posted(f"/v1/bundles/{'a' * 16}", traversing()) == 422
    assert posted(f"/v1/bundles/{'b' * 16}", os.urandom(1 << 20)) == 422
    # It may hang up before its answer was read.
    for path in ("/v1/batches", f"/v1/bundles/{'c' * 16}"):
        assert post_endless(fleet, path, chunked=False) in (413, 0)
        assert post_endless(fleet, path, chunked=True) in (411, 0)
    assert resident_kb(fleet.hub.pid) - memory < 40 << 10
    assert not list((fleet.state / "incoming").iterdir())
    time.sleep(1.0)
    after = json.loads(report(exhume, fleet, "--json"))
    for name in ("nodes", "sick_nodes", "incidents", "separators", "common"):
        assert after[name] == before[name], name
