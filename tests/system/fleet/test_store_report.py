"""The report over object stores: S3 (moto) and Google's (an emulator), and one that goes away meanwhile."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from tests.fleet.lakes import UNTIL, plan, planted
from tests.system.ray.ray_cluster import free_port

from exhume.cli.main import main
from exhume.fleet.engines import local
from exhume.fleet.lake import Lake, LakeError
from exhume.model.errors import NoData

pytestmark = pytest.mark.slow

HOURS = 6
WHEN = ["--since", f"{HOURS}h", "--until", f"@{UNTIL // 10**9}", "--utc"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("stores") / "lake", plan(150, HOURS / 24, seed=4)).directory


@pytest.fixture(scope="module")
def gcs() -> Iterator[str]:
    """The address of an emulator of Google's object store, with the bucket `bucket` in it. It is a process of its own:
    Arrow's client keeps Python waiting while it reads."""
    port = free_port()
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--in-memory", "--default-bucket", "bucket"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(10)


def store(directory: Path, uri: str, endpoint: str) -> Lake:
    lake = Lake.open(uri, endpoint)
    pyarrow.fs.copy_files(
        str(directory),
        uri.partition("://")[2],
        source_filesystem=pyarrow.fs.LocalFileSystem(),
        destination_filesystem=lake.filesystem,
    )
    return lake


def shape(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["fleet", "report", "--json", *WHEN, *args]) == 1
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def as_elsewhere(found: dict[str, Any]) -> dict[str, Any]:
    """Without what names the lake."""
    return {
        **found,
        "lake": "",
        "steps": [{**step, "command": "" if step["code"] == "compare" else step["command"]} for step in found["steps"]],
    }


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_the_report_of_a_store_is_that_of_the_directory(
    request: pytest.FixtureRequest, directory: Path, capsys: pytest.CaptureFixture[str], kind: str
):
    endpoint = request.getfixturevalue(kind)
    uri = f"{'s3' if kind == 's3' else 'gs'}://bucket/reported"
    place = ["--lake", uri, "--s3-endpoint", endpoint]
    store(directory, uri, endpoint)
    near = shape(capsys, "--lake", str(directory))
    far = shape(capsys, *place)
    assert far["lake"] == uri and near["separators"]
    assert as_elsewhere(far) == as_elsewhere(near)
    # What it advises can be run as it is.
    command = next(step["command"] for step in far["steps"] if step["code"] == "compare").split()
    assert command[:6] == ["exhume", "compare", *place]
    assert main([*command[1:], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"]
    assert main(["fleet", "compact", *place, "--json"]) == 0
    capsys.readouterr()
    assert as_elsewhere(shape(capsys, *place)) == as_elsewhere(near)


def test_a_lake_that_is_not_in_the_store_is_no_data(s3: str):
    with pytest.raises(NoData, match="no lake at s3://bucket/none"):
        main(["fleet", "report", "--lake", "s3://bucket/none", "--s3-endpoint", s3])


def test_a_store_that_goes_away_meanwhile_is_an_error_and_no_report(
    s3: str, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from moto.server import ThreadedMotoServer

    # Another server of the same buckets, which can be stopped.
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    store(directory, "s3://bucket/leaving", endpoint)
    read: list[int] = []
    select = local.select

    def leaving(connection: Any, query: Any, files: Any) -> Any:
        """It answers once."""
        if len(read) == 1:
            server.stop()
        read.append(len(files))
        return select(connection, query, files)

    monkeypatch.setattr(local, "select", leaving)
    began = time.monotonic()
    with pytest.raises(LakeError, match="the lake s3://bucket/leaving can't be used"):
        main(["fleet", "report", "--lake", "s3://bucket/leaving", "--s3-endpoint", endpoint, *WHEN])
    assert len(read) >= 2 and capsys.readouterr().out == ""
    assert time.monotonic() - began < 60
