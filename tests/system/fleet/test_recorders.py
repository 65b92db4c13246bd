"""Ten real recorders on one machine: eight push to one hub, whose lake is in an object store, two to that store."""

import time
from pathlib import Path

import pytest
from tests.system.faults.recorder_process import RecorderProcess, until
from tests.system.fleet.hub_process import HubProcess
from tests.system.fleet.test_object_store import rows

from exhume.fleet.lake import Lake
from exhume.fleet.schema import ATTRIBUTES, SUMMARIES
from exhume.fleet.tokens import Tokens

NODES = 10
# These have no hub.
DIRECT = ("node-8", "node-9")
RECORDED_S = 150
pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.timeout(900)]


def test_ten_recorders_push_to_one_hub_and_to_an_object_store(
    s3: str, tmp_path: Path, exhume_program: list[str]
) -> None:
    import subprocess

    state = tmp_path / "hub"
    tokens = Tokens(state)
    hub = HubProcess("s3://bucket/ten", state, "--s3-endpoint", s3, fold="5s")
    files = {}
    for number in range(NODES):
        node = f"node-{number}"
        files[node] = tmp_path / f"{node}.token"
        files[node].write_text(tokens.add(node))
    hub.start()
    began = time.time()
    # Where each node pushes to, and where all of it is pushed a second time.
    targets = {}
    for node, file in files.items():
        to_hub = [f"http://127.0.0.1:{hub.port}", "--push-token-file", str(file)]
        to_store = ["s3://bucket/direct", "--s3-endpoint", s3]
        targets[node] = (to_store, to_hub) if node in DIRECT else (to_hub, to_store)
    recorders = {
        node: RecorderProcess(
            tmp_path / node,
            tmp_path / f"{node}.said",
            *("--node-name", node, "--rate", "19", "--nice", "0", "--cpu-budget", "2%", "--push", *mine),
        )
        for node, (mine, _) in targets.items()
    }
    try:
        for recorder in recorders.values():
            recorder.recording()
        time.sleep(RECORDED_S)
        # One kill in the middle of it: nothing is lost, the nodes send again.
        hub.kill()
        hub.start()
        ended = [recorder.stop() for recorder in recorders.values()]
    finally:
        for recorder in recorders.values():
            if not recorder.ended:
                recorder.process.kill()
                recorder.process.wait()
    assert ended == [0] * NODES, [recorder.err for recorder in recorders.values()]
    lake, direct = Lake.open("s3://bucket/ten", s3), Lake.open("s3://bucket/direct", s3)
    by_recorders = rows(direct)
    assert {node for node, _ in by_recorders} == set(DIRECT)
    assert len(by_recorders) == len(set(by_recorders)) >= len(DIRECT) * (RECORDED_S // 60 - 1)
    for node, (mine, other) in targets.items():
        # What the end of its recorder left in the spool; and all of it a second time, the other way.
        for more in (mine, [*other, "--spool", str(tmp_path / f"{node}.spool")]):
            done = subprocess.run(
                [*exhume_program, "fleet", "push", "--dir", str(tmp_path / node), "--final", *more],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    until("the hub folds", lambda: len({node for node, _ in rows(lake)}) == NODES)
    hub.stop()
    through_hub, stored = rows(lake), rows(direct)
    assert len(through_hub) == len(set(through_hub)), "nothing is there twice"
    assert set(through_hub) == set(stored)
    for node in recorders:
        minutes = [minute.timestamp() for each, minute in stored if each == node]
        assert len(minutes) >= RECORDED_S // 60
        assert min(minutes) >= began - 60
    covered = [
        value
        for partition in direct.partitions(SUMMARIES)
        for name, _ in direct.files(partition.path)
        for value in direct.read(f"{partition.path}/{name}", ["covered_s"]).column("covered_s").to_pylist()
    ]
    assert sum(covered) > NODES * (RECORDED_S - 10)
    assert len(lake.partitions(ATTRIBUTES)) >= 1


@pytest.fixture
def exhume_program() -> list[str]:
    from tests.system.faults.recorder_process import PROGRAM

    return [PROGRAM]
