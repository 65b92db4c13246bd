"""A diagnosis as JSON: the documented, versioned shape of `exhume diagnose --json`."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import tzinfo
from typing import Any

from exhume.model.clock import MILLIS
from exhume.model.finding import DIAGNOSIS_VERSION, Diagnosis, Evidence, Finding, Link, Remedy
from exhume.model.times import format_moment
from exhume.present.diagnosis_view import verdict_text, where_text


def diagnosis_json(diagnosis: Diagnosis, zone: tzinfo | None) -> dict[str, Any]:
    """The whole diagnosis; times are RFC 3339."""
    return {
        "version": DIAGNOSIS_VERSION,
        "node": diagnosis.node,
        "window": _span(diagnosis.window, zone),
        "focus": _span(diagnosis.focus, zone),
        "baseline": _span(diagnosis.baseline, zone) if diagnosis.baseline[1] > diagnosis.baseline[0] else None,
        "verdict": str(diagnosis.verdict),
        "sentence": verdict_text(diagnosis),
        "findings": [finding_json(finding, zone) for finding in diagnosis.findings],
        "symptoms": [_link(link, zone) for link in diagnosis.symptoms],
        "ruled_out": [{**asdict(reason), "values": dict(reason.values)} for reason in diagnosis.ruled_out],
        "blind_spots": [spot.text for spot in diagnosis.blind_spots],
    }


def diagnosis_page_json(diagnosis: Diagnosis, zone: tzinfo | None) -> dict[str, Any]:
    """The same for the page and the HTML report: every time is there as milliseconds too."""
    data = diagnosis_json(diagnosis, zone)
    windows = {"window": diagnosis.window, "focus": diagnosis.focus, "baseline": diagnosis.baseline}
    for name, (since, until) in windows.items():
        if data[name] is not None:
            data[name] |= _span_ms(since, until)
    for finding, each in zip(diagnosis.findings, data["findings"], strict=True):
        _add_ms(finding.chain, each["chain"])
    _add_ms(diagnosis.symptoms, data["symptoms"])
    return data


def _add_ms(links: Sequence[Link], data: list[dict[str, Any]]) -> None:
    for link, each in zip(links, data, strict=True):
        each["at_ms"] = link.at // MILLIS
        for evidence, quoted in zip(link.evidence, each["evidence"], strict=True):
            quoted.update(_span_ms(evidence.since, evidence.until))


def _span_ms(since: int, until: int) -> dict[str, int]:
    return {"since_ms": since // MILLIS, "until_ms": until // MILLIS}


def finding_json(finding: Finding, zone: tzinfo | None) -> dict[str, Any]:
    """One finding. A culprit's fields are null where they are not known."""
    return {
        "cause": finding.cause,
        "title": finding.title,
        "severity": str(finding.severity),
        "confidence": finding.confidence,
        "why_not_sure": [doubt.text for doubt in finding.doubts],
        "doubts": [doubt.code for doubt in finding.doubts],
        "summary": finding.summary,
        "entities": [asdict(entity) for entity in finding.entities],
        "chain": [_link(link, zone) for link in finding.chain],
        "culprit": asdict(finding.culprit),
        "remedies": [_remedy(remedy) for remedy in finding.remedies],
    }


def _link(link: Link, zone: tzinfo | None) -> dict[str, Any]:
    return {
        "role": str(link.role),
        "code": link.code,
        "at": format_moment(link.at, zone),
        "text": link.text,
        "evidence": [_evidence(each, zone) for each in link.evidence],
    }


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "id": remedy.id,
        "action": str(remedy.action),
        "target": remedy.target,
        "fix_target": remedy.fix_target,
        "text": remedy.text,
        "command": remedy.command,
        "risk": remedy.risk,
        "reversible": remedy.reversible,
    }


def _evidence(evidence: Evidence, zone: tzinfo | None) -> dict[str, Any]:
    return {
        "table": evidence.table,
        "where": where_text(evidence, zone),
        "value": evidence.value,
        "unit": evidence.unit,
        "column": evidence.column,
        "how": evidence.how,
        "since": format_moment(evidence.since, zone),
        "until": format_moment(evidence.until, zone),
        "cpu": evidence.cpu,
        "match": dict(evidence.match),
        "functions": list(evidence.functions),
    }


def _span(window: tuple[int, int], zone: tzinfo | None) -> dict[str, str]:
    return {"since": format_moment(window[0], zone), "until": format_moment(window[1], zone)}
