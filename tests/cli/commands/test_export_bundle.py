"""Incident bundles as people make and open them: the same diagnosis, and no secrets."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest
from tests.store.store_rows import cpu_rows, recorder, tick_at

from exhume.store.read.recording import Recording

SECRETS = ("hunter2", "s3cr3t-token", "url-passw0rd")


@pytest.fixture(scope="module")
def bundle(exhume, small_recording, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("bundle") / "incident.exhume.zip"
    result = exhume("export", "bundle", "--dir", str(small_recording), "--at", "18:02:15", "--utc", "-o", str(file))
    assert str(file) in result.stderr
    return file


@pytest.fixture
def secret_recording(tmp_path: Path) -> Path:
    """A recorder that kept secrets wrote it."""
    writer = recorder(tmp_path / "recording")
    for index in range(40):
        tick = tick_at(index)
        if not index:
            commands = [
                "/usr/bin/agent --password hunter2 --db postgres://app:url-passw0rd@db/x",
                "curl -H Authorization: Bearer s3cr3t-token",
            ]
            columns = {"time": [tick.start] * 2, "pid": [11, 12], "comm": ["agent", "curl"], "cmdline": commands}
            writer.append("processes", columns)
        text = {
            "source": ["kernel-log"],
            "kind": ["kernel-line"],
            "severity": ["info"],
            "text": ["run --token=s3cr3t-token"],
        }
        writer.append("events", {"time": [tick.start], **text})
        writer.append("cpu", cpu_rows(tick, system=900))
        writer.commit(tick)
    writer.close()
    return tmp_path / "recording"


def everything(file: Path) -> bytes:
    """The content of all entries, with what Parquet compressed as text."""
    found = b""
    with zipfile.ZipFile(file) as archive:
        found += b"".join(archive.read(name) for name in archive.namelist() if not name.endswith(".parquet"))
    recording = Recording.open(file)
    for table in ("processes", "events"):
        found += json.dumps(recording.read(table).to_pylist()).encode()
    recording.close()
    return found


def test_it_holds_what_people_and_programs_need(bundle):
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
        assert {"README.txt", "report.html", "diagnosis.json"} < set(names)
        diagnosis = json.loads(archive.read("diagnosis.json"))
        page = archive.read("report.html").decode()
    assert diagnosis["findings"][0]["cause"] == "zombie-memcgs"
    assert page.startswith("<!doctype html>") and not re.search(r"(?:src|href)=\"https?:", page)
    assert bundle.stat().st_size < 5_000_000


@pytest.mark.parametrize("command", [("diagnose",), ("cores",), ("info",), ("incidents",), ("events",)])
def test_every_command_opens_it(exhume, bundle, command):
    result = exhume(*command, "--dir", str(bundle), "--json", check=False)
    assert result.returncode in (0, 1)
    answer = json.loads(result.stdout)
    if command == ("info",):
        assert answer["directory"] == str(bundle)
    if command == ("diagnose",):
        assert answer["findings"][0]["cause"] == "zombie-memcgs"
        assert answer["findings"][0]["culprit"]["cpu"] == 5


def test_flame_and_export_open_it(exhume, bundle, tmp_path):
    exhume("flame", "--dir", str(bundle), "--cpu", "5", "-o", str(tmp_path / "flame.svg"))
    assert "mem_cgroup" in (tmp_path / "flame.svg").read_text()
    assert "kubelet" in exhume("export", "folded", "--dir", str(bundle), "--cpu", "5").stdout


def test_secrets_are_not_in_it(exhume, secret_recording, tmp_path):
    file = tmp_path / "redacted.exhume.zip"
    exhume("export", "bundle", "--dir", str(secret_recording), "--last", "30s", "-o", str(file))
    content = everything(file)
    assert b"/usr/bin/agent --password ***" in content and b"--token=***" in content
    for secret in SECRETS:
        assert secret.encode() not in content


def test_secrets_are_kept_on_request(exhume, secret_recording, tmp_path):
    file = tmp_path / "plain.exhume.zip"
    result = exhume("export", "bundle", "--dir", str(secret_recording), "--last", "30s", "--no-redact", "-o", str(file))
    content = everything(file)
    assert all(secret.encode() in content for secret in SECRETS)
    assert "look before" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("bundle",),
        ("bundle", "--at", "18:02:15", "--last", "1m", "-o", "x.zip"),
        ("bundle", "--cpu", "5", "-o", "x.zip"),
        ("bundle", "--by", "core", "-o", "x.zip"),
        ("bundle", "-o", "/no/such/directory/x.zip"),
        ("csv", "--at", "18:02:15"),
        ("csv", "--no-redact"),
    ],
)
def test_what_makes_no_sense_is_an_error(exhume, small_recording, args):
    result = exhume("export", args[0], "--dir", str(small_recording), *args[1:], check=False)
    assert result.returncode == 2 and result.stderr.startswith("exhume: ")


def test_a_moment_that_was_not_recorded_is_no_data(exhume, small_recording, tmp_path):
    args = ("--at", "2020-01-01T00:00:00Z", "-o", str(tmp_path / "x.zip"))
    assert exhume("export", "bundle", "--dir", str(small_recording), *args, check=False).returncode == 3


def test_a_file_that_is_no_bundle_is_an_error(exhume, tmp_path):
    (tmp_path / "x.zip").write_bytes(b"not a bundle")
    for command in ("diagnose", "cores", "serve"):
        result = exhume(command, "--dir", str(tmp_path / "x.zip"), check=False)
        assert result.returncode == 2 and "not a bundle" in result.stderr


@pytest.mark.slow
def test_the_page_serves_it_and_leaves_nothing(bundle, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "exhume.cli.main", "serve", "--dir", str(bundle), "--listen", "127.0.0.1:0"]
    server = subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert select.select([server.stdout], [], [], 60)[0]
        address = server.stdout.readline().removeprefix("exhume: ").strip()
        with urllib.request.urlopen(f"{address}api/recording", timeout=60) as answer:
            assert json.load(answer)["node"] == "synthetic-7"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    until = 200
    while list(tmp_path.glob("exhume-bundle-*")) and until:
        until -= 1
        select.select([], [], [], 0.05)
    assert not list(tmp_path.glob("exhume-bundle-*"))
