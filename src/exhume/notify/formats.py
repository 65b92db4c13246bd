"""The bodies of webhooks: the report itself, a Slack message, and alerts of Alertmanager's API v2."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any

from exhume.model.clock import NANOS
from exhume.model.times import format_moment
from exhume.notify.report import Report

# Slack truncates texts at 40,000 characters and displays fewer; Alertmanager's receivers prefer short annotations.
MAX_TEXT = 3000
# Alertmanager resolves an alert at its end time; another report of the same cause before then extends it.
ALERT_NS = 900 * NANOS


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
