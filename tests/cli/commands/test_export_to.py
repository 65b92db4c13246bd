"""exhume export --to: profiles arrive whole at a server, with its token, also when it is in trouble at first."""

import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from tests.interop.pprof_reader import read_pprof
from tests.notify.profile_server import profile_server

from exhume.notify import upload

WINDOW = ("--since", "18:02:13", "--until", "18:02:19", "--utc", "--cpu", "5")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(upload.Backoff, "next_s", lambda self, at_least_s=0.0: 0.01)


def test_otlp_arrives(exhume, small_recording):
    with profile_server((503, {})) as server:
        args = ("--to", server.url, "--dir", str(small_recording))
        result = exhume("export", "otlp", *args, *WINDOW, EXHUME_TO_TOKEN="from-environment")
    assert result.stdout == "" and "503" in result.stderr
    first, second = server.received
    assert first.body == second.body and second.path == "/v1development/profiles"
    assert second.headers["authorization"] == "Bearer from-environment"
    message = ExportProfilesServiceRequest.FromString(second.body)
    assert len(message.resource_profiles[0].scope_profiles[0].profiles[0].samples) > 1


def test_pprof_arrives_and_is_written_too(exhume, small_recording, tmp_path):
    (tmp_path / "token").write_text("from-file\n")
    file = tmp_path / "x.pb.gz"
    with profile_server() as server:
        to = ("--to", f"{server.url}/ingest", "--to-token-file", str(tmp_path / "token"), "-o", str(file))
        exhume("export", "pprof", *to, "--dir", str(small_recording), *WINDOW)
    (request,) = server.received
    assert request.headers["authorization"] == "Bearer from-file"
    assert file.read_bytes() in request.body
    assert read_pprof(file.read_bytes()).samples


def test_failures_are_errors(exhume, small_recording, tmp_path):
    args = ("--dir", str(small_recording), *WINDOW)
    with profile_server((401, {})) as server:
        result = exhume("export", "otlp", "--to", server.url, *args, check=False)
        assert result.returncode == 2 and "401" in result.stderr
        missing = ("--to", server.url, "--to-token-file", str(tmp_path / "none"))
        assert exhume("export", "otlp", *missing, *args, check=False).returncode == 2
        assert exhume("export", "csv", "--to", server.url, *args, check=False).returncode == 2
        none = exhume("export", "otlp", "--to", server.url, *args, "--comm", "no-such", check=False)
        assert none.returncode == 3
    assert len(server.received) == 1
