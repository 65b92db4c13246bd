"""The bodies of webhooks."""

import json

import pytest

from exhume.notify.formats import FORMATS, MAX_TEXT
from exhume.notify.report import REPORT_VERSION, UNEXPLAINED


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
