"""Webhooks: reports posted to a URL by a short-lived child, the only process that loads HTTP and TLS code. Their bodies
are the report itself, a Slack message, or alerts of Alertmanager's API v2."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

from exhume.model.clock import NANOS
from exhume.model.isolation import isolated_python
from exhume.model.times import format_moment
from exhume.notify.child import child_environment, run_child
from exhume.notify.outbox import Backoff, Delivery, OutboxSink
from exhume.notify.report import Report

CHILD_TIMEOUT_S = 20.0
# Slack truncates texts at 40,000 characters and displays fewer; Alertmanager's receivers prefer short annotations.
MAX_TEXT = 3000
# Alertmanager resolves an alert at its end time; another report of the same cause before then extends it.
ALERT_NS = 900 * NANOS


class WebhookSink(OutboxSink):
    """Posts each report. The token is read for each request, so that token rotation works."""

    def __init__(
        self,
        url: str,
        form: str = "json",
        token_file: Path | None = None,
        token: str | None = None,
        *,
        timeout_s: float = CHILD_TIMEOUT_S,
        backoff: Backoff | None = None,
    ) -> None:
        self._url, self._body, self._token_file, self._token = url, FORMATS[form], token_file, token
        self._timeout_s = timeout_s
        super().__init__("--webhook", self._post, backoff)

    def _post(self, report: Report) -> Delivery:
        token = self._token
        if self._token_file is not None:
            try:
                token = self._token_file.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                return Delivery(False, retry=True, problem=f"the token can't be read from {self._token_file}: {error}")
        # Passed on stdin: arguments and the environment are visible to other processes.
        job = {"url": self._url, "token": token, "body": self._body(report).decode()}
        try:
            done = run_child(
                isolated_python("exhume.notify.post"),
                json.dumps(job).encode(),
                timeout_s=self._timeout_s,
                cancel=self._cancel,
                environment=child_environment(),
            )
        except OSError as error:
            return Delivery(False, retry=True, problem=f"a process can't be started: {error}")
        return delivery_of(done.code, done.output, f"no answer within {self._timeout_s:.0f} s")


def delivery_of(code: int | None, output: bytes, late: str) -> Delivery:
    """Parse what the child printed about its request."""
    if code is None:
        return Delivery(False, retry=True, problem=late)
    try:
        found = json.loads(output)
        return Delivery(
            bool(found["delivered"]), bool(found["retry"]), str(found["problem"]), float(found["retry_after_s"])
        )
    except (ValueError, KeyError, TypeError):
        return Delivery(False, retry=True, problem=f"the process that delivers ended with code {code}")


def json_body(report: Report) -> bytes:
    return report.encoded()


def slack_body(report: Report) -> bytes:
    """A message for an incoming webhook (Slack, Mattermost, Rocket.Chat and others accept the same `text`)."""
    lines = [
        f"*{_slack(report.node)}: {_slack(report.cause)}* ({report.severity}, {report.verdict}) at {report.at}",
        _slack(report.summary),
    ]
    lines += [f"`{_slack(command)}`" for command in _commands(report)]
    if report.repeats:
        lines.append(f"{report.repeats} more of it since the last message")
    return _encode({"text": "\n".join(lines)[:MAX_TEXT]})


def alertmanager_body(report: Report) -> bytes:
    """One alert for POST /api/v2/alerts. Its labels identify it, so they have no values that change."""
    labels = {"alertname": "ExhumeIncident", "cause": report.cause, "severity": report.severity, "node": report.node}
    annotations = {"summary": report.summary[:MAX_TEXT], "verdict": report.verdict}
    if commands := _commands(report):
        annotations["command"] = commands[0][:MAX_TEXT]
    newest = max(mark.wall for mark in report.marks)
    ends = format_moment(newest + ALERT_NS, UTC, digits=3)
    return _encode([{"labels": labels, "annotations": annotations, "startsAt": report.at, "endsAt": ends}])


FORMATS: Mapping[str, Callable[[Report], bytes]] = {
    "json": json_body,
    "slack": slack_body,
    "alertmanager": alertmanager_body,
}


def _commands(report: Report) -> list[str]:
    """The command to run first, if any."""
    remedies = [remedy for finding in report.findings[:1] for remedy in finding.get("remedies", ())]
    return [str(remedy["command"]) for remedy in remedies if remedy.get("command")][:1]


def _slack(text: str) -> str:
    """Escape Slack's three control characters: a process name must not be able to mention a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")


def _encode(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode("utf-8", "replace")
