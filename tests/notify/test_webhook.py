"""--webhook against a loopback server: slow, hanging, failing, flooding."""

import contextlib
import json
import socket
import ssl
import subprocess
import threading
import time

import pytest
from tests.notify.conftest import answer

from exhume.notify.outbox import Backoff
from exhume.notify.post import post
from exhume.notify.report import REPORT_VERSION, UNEXPLAINED
from exhume.notify.webhook import FORMATS, MAX_TEXT, WebhookSink, delivery_of


@pytest.fixture
def sink(receiver):
    made = []

    def sink(*args, **options):
        made.append(WebhookSink(receiver.url, *args, backoff=Backoff(0.02, 0.1), **options))
        made[-1].start()
        return made[-1]

    yield sink
    for each in made:
        each.close(0.2)


def test_the_report_and_the_token_of_a_file_that_changes(sink, receiver, reports, eventually, tmp_path):
    report_of, finding = reports
    token = tmp_path / "token"
    token.write_text("first-token\n")
    hook = sink("json", token)
    hook.deliver(report_of(finding()))
    eventually("the first", lambda: hook.outbox.delivered == 1)
    token.write_text("second-token")
    hook.deliver(report_of(finding("rt-hog")))
    eventually("the second", lambda: hook.outbox.delivered == 2)
    assert [headers["Authorization"] for headers, _ in receiver.requests] == [
        "Bearer first-token",
        "Bearer second-token",
    ]
    assert [json.loads(body)["cause"] for _, body in receiver.requests] == ["softirq-storm", "rt-hog"]


def test_failures_are_retried_in_order(sink, receiver, reports, eventually):
    report_of, finding = reports
    receiver.answers = [answer(500), answer(429, Retry_After="0"), answer(204)]
    hook = sink("slack", token="t0ken")
    hook.deliver(report_of(finding()))
    eventually("it is delivered", lambda: hook.outbox.delivered == 1)
    assert len(receiver.requests) == 3


def test_a_refusal_is_not_repeated(sink, receiver, reports, eventually):
    receiver.answers = [answer(400)]
    hook = sink()
    hook.deliver(reports[0]())
    eventually("it is dropped", lambda: hook.outbox.dropped == 1)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("answers", "delivered", "retry"),
    [
        (answer(200, bytes(50_000_000)), True, False),
        (answer(503, Retry_After="17"), False, True),
        (answer(302, Location="http://127.0.0.1:1/elsewhere"), False, False),
        (lambda handler: handler.wfile.write(b"nonsense\r\n\r\n"), False, True),
        (lambda handler: handler.connection.shutdown(socket.SHUT_RDWR), False, True),
        (lambda handler: time.sleep(3), False, True),
    ],
    ids=["huge", "503", "redirect", "nonsense", "closed", "slow"],
)
def test_odd_answers(receiver, answers, delivered, retry):
    receiver.answers = [answers]
    began = time.monotonic()
    found = post(receiver.url, "secret", b"{}", timeout_s=1.0)
    assert (found.delivered, found.retry) == (delivered, retry)
    assert time.monotonic() - began < 15
    assert found.retry_after_s in (0, 17)
    assert "secret" not in found.problem


def test_a_server_that_sends_a_byte_now_and_then_is_cut_off(sink, receiver, reports, eventually):
    def drip(handler):
        for _ in range(200):
            handler.wfile.write(b"H")
            time.sleep(0.1)

    receiver.answers = [drip]
    hook = sink(timeout_s=1.5)
    hook.deliver(reports[0]())
    eventually("it is tried again", lambda: len(receiver.requests) >= 2)
    assert hook.outbox.delivered == 0


def test_nothing_listens():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = post(f"http://127.0.0.1:{unused.getsockname()[1]}/", None, b"{}")
    assert (found.delivered, found.retry) == (False, True)


@pytest.mark.needs("openssl")
def test_a_certificate_that_is_not_trusted_is_refused(tmp_path):
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True).recv(1)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        found = post(f"https://localhost:{server.getsockname()[1]}/", "secret", b"{}")
        thread.join(5)
    assert not found.delivered
    assert "certificate is not valid" in found.problem


@pytest.mark.parametrize("output", [b"", b"[]", b"{}", b'{"delivered": 1}', b"\xff"])
def test_a_child_that_says_nothing_useful_is_retried(output):
    assert delivery_of(1, output, "late").retry


def body(form, report):
    return json.loads(FORMATS[form](report))


def test_json_has_the_diagnosis_as_it_is(reports):
    report_of, finding = reports
    report = report_of(finding("info-only", "info"), finding("rt-hog"), baseline=None)
    found = body("json", report)
    assert found["version"] == REPORT_VERSION
    assert (found["cause"], found["severity"], found["verdict"]) == ("rt-hog", "critical", "starved")
    assert found["diagnosis"] == json.loads(json.dumps(dict(report.diagnosis)))
    assert found["marks"][0]["cpu"] == 3


@pytest.mark.parametrize(("verdict", "severity"), [("starved", "critical"), ("healthy", "warning")])
def test_an_incident_without_a_finding_is_what_was_marked(reports, verdict, severity):
    report = reports[0](verdict=verdict)
    assert (report.cause, report.severity, report.summary) == (UNEXPLAINED, severity, report.marks[0].text)


def test_slack_escapes_and_is_short(reports):
    report_of, finding = reports
    text = body("slack", report_of(finding(summary="<!channel> & `rm` " + "x" * 9000)))["text"]
    assert "<!channel>" not in text and "&lt;!channel&gt; &amp; 'rm'" in text
    assert len(text) <= MAX_TEXT


def test_alertmanager(reports):
    report_of, finding = reports
    (alert,) = body("alertmanager", report_of(finding("zombie-memcgs")))
    assert alert["labels"] == {
        "alertname": "ExhumeIncident",
        "cause": "zombie-memcgs",
        "severity": "critical",
        "node": "node-1",
    }
    assert alert["startsAt"] < alert["endsAt"]
    assert alert["annotations"]["command"] == "exhume fix plan x.service"


@pytest.mark.parametrize("form", FORMATS)
def test_odd_names_are_still_json(reports, form):
    report_of, finding = reports
    assert FORMATS[form](report_of(finding(summary="\ud800\x00\u2028"))).decode()
