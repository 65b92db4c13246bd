"""TLS from node to hub, with certificates that openssl makes: what can't be verified gets nothing, least of all the
token."""

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cli.conftest import exhume  # noqa: F401
from tests.fleet.fleet_rows import batch, rows_in
from tests.system.fleet.certificates import Certificate, authority, signed
from tests.system.fleet.hub_process import HubProcess
from tests.system.fleet.recorded_nodes import OTHER_IMAGE, OTHER_ZONE, RecordedNode

from exhume.cli import exit_codes
from exhume.fleet.push import HubTarget
from exhume.fleet.spool import Entry
from exhume.fleet.tokens import Tokens
from exhume.model.clock import NANOS
from exhume.model.errors import UsageError

pytestmark = [pytest.mark.slow, pytest.mark.needs("openssl")]
TOKEN = "exf_this-is-the-token-of-the-node"


@dataclass(frozen=True)
class Made:
    """An authority that the node knows, one that it does not, and certificates of both."""

    ca: Path
    good: Certificate
    bad: dict[str, Certificate]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Made:
    directory = tmp_path_factory.mktemp("certificates")
    known, other = authority(directory, "known"), authority(directory, "other")
    return Made(
        known.file,
        signed(known, "good", "localhost"),
        {
            "self-signed": authority(directory, "localhost"),
            "of another authority": signed(other, "foreign", "localhost"),
            "of another host": signed(known, "elsewhere", "hub.example"),
            "expired": signed(known, "expired", "localhost", days=-1),
        },
    )


@pytest.fixture
def entry(tmp_path) -> Entry:
    path = tmp_path / "000000000000-1.json.gz"
    path.write_bytes(batch().encode())
    return Entry(0, path, None, 1)


@dataclass
class Eavesdropper:
    """A server that takes whatever it is sent, in the clear or behind its certificate."""

    listener: socket.socket
    context: ssl.SSLContext | None
    heard: bytearray = field(default_factory=bytearray)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def listen(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                spoken = stack.enter_context(connection)
                spoken.settimeout(0.5)
                if self.context is not None:
                    spoken = stack.enter_context(self.context.wrap_socket(spoken, server_side=True))
                while piece := spoken.recv(4096):
                    self.heard += piece


@contextlib.contextmanager
def eavesdropper(certificate: Certificate | None) -> Iterator[Eavesdropper]:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.file, certificate.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Eavesdropper(listener, context)
        thread = threading.Thread(target=one.listen, daemon=True)
        thread.start()
        yield one
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.parametrize("which", ["self-signed", "of another authority", "of another host", "expired"])
def test_a_certificate_that_can_not_be_verified_gets_nothing(certificates, entry, which):
    with eavesdropper(certificates.bad[which]) as server:
        target = HubTarget(f"https://localhost:{server.port}", TOKEN, None, certificates.ca)
        found = target.deliver(entry)
    assert (found.delivered, found.retry) == (False, True), "it stays in the spool"
    assert "certificate is not valid" in found.problem and "--push-ca-file" in found.problem
    assert bytes(server.heard) == b""


def test_a_server_without_tls_gets_no_token(certificates, entry):
    with eavesdropper(None) as server:
        found = HubTarget(f"https://localhost:{server.port}", TOKEN, None, certificates.ca).deliver(entry)
    assert not found.delivered
    assert TOKEN.encode() not in server.heard and b"Bearer" not in server.heard


def test_a_proxy_of_the_environment_does_not_get_what_is_for_this_machine(entry, monkeypatch):
    with eavesdropper(None) as proxy, eavesdropper(None) as hub:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        HubTarget(f"http://127.0.0.1:{hub.port}", TOKEN).deliver(entry)
    assert bytes(proxy.heard) == b""
    assert TOKEN.encode() in hub.heard


@pytest.mark.parametrize("url", ["http://hub.example:8460", "http://10.0.0.1:8460", "http://127.0.0.1.example"])
def test_without_tls_only_this_machine_is_sent_to(url):
    with pytest.raises(UsageError, match="https"):
        HubTarget(url, TOKEN)


def test_authorities_that_can_not_be_read_are_named(entry, tmp_path):
    for content in (None, "no certificate"):
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_text(content)
        with eavesdropper(None) as server:
            found = HubTarget(f"https://localhost:{server.port}", TOKEN, None, file).deliver(entry)
        assert not found.delivered and str(file) in found.problem
        assert bytes(server.heard) == b""


def test_a_node_pushes_to_a_hub_whose_certificate_it_can_verify(certificates, exhume, tmp_path):  # noqa: F811
    lake, state, token, recording = (tmp_path / name for name in ("lake", "state", "token", "recording"))
    node = RecordedNode("node-1", OTHER_IMAGE, OTHER_ZONE)
    node.write(recording, (int(time.time()) // 60 - 2) * 60 * NANOS)
    context = ssl.create_default_context(cafile=str(certificates.ca))
    hub = HubProcess(str(lake), state, *certificates.good.options, fold="300ms", tls=context)
    token.write_text(Tokens(state).add(node.name))
    hub.start()
    try:
        args = ("fleet", "push", f"https://localhost:{hub.port}", "--dir", str(recording), "--since", "1d")
        args = (*args, "--final", "--push-token-file", str(token))
        unknown = exhume(*args, check=False)
        assert unknown.returncode == exit_codes.ERROR
        assert "certificate is not valid" in unknown.stderr and "nothing was sent" in unknown.stderr
        # By the name in it: an address is another one.
        elsewhere = [each.replace("localhost", "127.0.0.1") for each in args]
        assert exhume(*elsewhere, "--push-ca-file", str(certificates.ca), check=False).returncode == exit_codes.ERROR
        assert exhume(*args, "--push-ca-file", str(certificates.ca)).returncode == exit_codes.OK
    finally:
        hub.stop()
    assert [row["node"] for row in rows_in(lake)] == [node.name] * 2


def test_a_hub_with_a_certificate_that_is_none_does_not_start(certificates, exhume, tmp_path):  # noqa: F811
    other = certificates.bad["self-signed"]
    locked = tmp_path / "locked.key"
    subprocess.run(
        f"openssl ec -in {certificates.good.key} -aes128 -passout pass:secret -out {locked}".split(),
        check=True,
        capture_output=True,
    )
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for cert, key in (
        (certificates.good.file, other.key),
        (certificates.good.file, locked),
        (broken, certificates.good.key),
        (tmp_path / "missing.pem", certificates.good.key),
    ):
        args = ("--lake", str(tmp_path / "lake"), "--bind", "0.0.0.0:0", "--tls-cert", str(cert), "--tls-key", str(key))
        done = exhume("fleet", "hub", *args, check=False)
        assert done.returncode == exit_codes.ERROR
        assert "PEM" in done.stderr and str(cert) in done.stderr
