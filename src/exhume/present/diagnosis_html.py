"""A diagnosis as one page that stands alone: no request leaves it, and it opens from a file or a ticket alike."""

import base64
from collections.abc import Iterable
from datetime import tzinfo
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from exhume.model.finding import Finding, Link, Remedy, Severity
from exhume.model.text import duration, percent
from exhume.model.window import Window
from exhume.present.diagnosis_page import Page
from exhume.present.diagnosis_view import (
    ROLE_WORDS,
    clock_text,
    confidence_text,
    doubt_text,
    evidence_parts,
    focus_text,
    link_text,
    remedy_notes,
    span_text,
    verdict_text,
)
from exhume.present.events_view import visible
from exhume.present.flame_html import embedded_json
from exhume.present.palette import BY_NAME, STATES
from exhume.store.read.core_grid import GAP
from exhume.store.read.core_grid import STATES as CORE_STATES

# A cell is a byte: permille in steps of five, and one value for what was not recorded.
_STEP, _UNRECORDED = 5, 255


def render_page(page: Page) -> str:
    """The page as text. The policy in its head forbids it to load anything."""
    diagnosis, zone = page.diagnosis, page.zone
    grave = _grave(page)
    parts = {
        "title": escape(f"{diagnosis.node}: {diagnosis.verdict}"),
        "style": _asset("diagnosis.css"),
        "header": _header(page),
        "findings": "".join(_finding(each, zone, first=n == 0) for n, each in enumerate(grave)) or _felt(page),
        "cores": _cores(page),
        "flame": _flame(page),
        "also": "".join(_finding(each, zone) for each in diagnosis.findings if each.severity is Severity.INFO),
        "log": _log(page),
        "ruled": _ruled_out(page),
        "blind": _blind_spots(page),
        "data": embedded_json(_data(page)),
        "script": _asset("diagnosis.js"),
    }
    template = _asset("diagnosis.html")
    for name, content in parts.items():
        template = template.replace(f"<!--{name}-->", content, 1)
    return template


def _header(page: Page) -> str:
    diagnosis = page.diagnosis
    return (
        f'<p class="badge {diagnosis.verdict}">{diagnosis.verdict}</p>'
        f"<h1>{escape(verdict_text(diagnosis))}</h1>"
        f'<p class="quiet">{escape(diagnosis.node)} · {escape(focus_text(diagnosis, page.zone))}</p>'
    )


def _grave(page: Page) -> list[Finding]:
    """What matters; what is only worth knowing stands further down."""
    return [finding for finding in page.diagnosis.findings if finding.severity is not Severity.INFO]


def _finding(finding: Finding, zone: tzinfo | None, *, first: bool = False) -> str:
    # The first one's summary is the headline.
    sure = f"{percent(finding.confidence, 0)} sure, {confidence_text(finding.confidence)}"
    doubt = doubt_text(finding)
    summary = "" if first else f"<p>{escape(visible(finding.summary))}</p>"
    return (
        f'<section class="finding"><h2><span class="badge {finding.severity}">{finding.severity}</span> '
        f"{escape(finding.title)} <code>{escape(finding.cause)}</code></h2>"
        f'<div class="sure"><meter min="0" max="1" value="{finding.confidence}"></meter> {escape(sure)}'
        f"{f'<span class=quiet>: {escape(doubt)}</span>' if doubt else ''}</div>"
        f"{summary}{_culprit(finding)}"
        f'<ol class="chain">{_stations(finding.chain, zone)}{_remedies(finding.remedies)}</ol></section>'
    )


def _felt(page: Page) -> str:
    links = page.diagnosis.symptoms
    if not links:
        return ""
    return f'<section><h2>What was felt</h2><ol class="chain">{_stations(links, page.zone)}</ol></section>'


def _culprit(finding: Finding) -> str:
    culprit = finding.culprit
    told = [
        ("core", culprit.cpu),
        ("process", culprit.comm if culprit.pid is None else f"{culprit.comm} ({culprit.pid})"),
        ("function", culprit.function),
        ("command", culprit.cmdline),
        ("cgroup", culprit.cgroup),
        ("container", _called(culprit.container_name, culprit.container)),
        ("pod", _called(culprit.pod_name, culprit.pod)),
    ]
    rows = [f"<div><dt>{name}</dt><dd>{escape(visible(str(v)))}</dd></div>" for name, v in told if v is not None]
    return f'<dl class="culprit">{"".join(rows)}</dl>' if rows else ""


def _called(name: str | None, number: str | None) -> str | None:
    """A name with the id behind it, as far as they are known and not the same."""
    return f"{name} ({number})" if name and number and name != number else name or number


def _stations(links: Iterable[Link], zone: tzinfo | None) -> str:
    found, told = [], ""
    for link in links:
        role, text = ROLE_WORDS[link.role], link_text(link)
        evidence = "".join(
            f"<li>{escape(' · '.join(evidence_parts(each, zone, quoted=text)))}</li>" for each in link.evidence
        )
        found.append(
            f'<li class="{link.role}"><time>{clock_text(link.at, zone)}</time>'
            f'<b class="role">{role if role != told else ""}</b>'
            f"<div><p>{escape(text)}</p>{f'<ul>{evidence}</ul>' if evidence else ''}</div></li>"
        )
        told = role
    return "".join(found)


def _remedies(remedies: Iterable[Remedy]) -> str:
    found = []
    for place, remedy in enumerate(remedies):
        command = f"<pre>{escape(visible(remedy.command))}</pre>" if remedy.command else ""
        notes = escape(remedy_notes(remedy.risk, remedy.reversible))
        found.append(
            f'<li class="remedy"><time></time><b class="role">{"" if place else "remedy"}</b>'
            f'<div><p>{escape(visible(remedy.text))} <span class="quiet">({notes})</span></p>{command}</div></li>'
        )
    return "".join(found)


def _cores(page: Page) -> str:
    if not page.rows:
        return '<p class="quiet">No core was recorded in this time.</p>'
    asked, shown = Window(*page.diagnosis.window), page.shown
    part = "" if shown.nanos >= asked.nanos else f", the part around the focus of {duration(asked.nanos)}"
    legend = "".join(
        f'<span><i style="background:{state.hue}"></i>{state.name}: {state.meaning}</span>'
        for state in STATES
        if state.name not in ("wait", "iowait")
    )
    each = f"each cell the worst second of {duration(page.axis.cell_nanos)}" if page.axis.cell_nanos > 10**9 else ""
    pooled = "neighbouring cores share a line, which shows the worst of them" if len(page.rows[0].cpus) > 1 else ""
    notes = "; ".join(note for note in (each, pooled) if note)
    return (
        f'<p class="quiet">{escape(span_text(shown, page.zone) + part)}{". " + notes if notes else ""}</p>'
        '<h3>The kernel on its worst core</h3><div class="stage"><canvas id="curve"></canvas></div>'
        '<h3>Every core</h3><div class="stage"><canvas id="heat"></canvas></div>'
        f'<p class="legend">{legend}<span><i class="gap"></i>not recorded</span>'
        '<span><i class="focus"></i>what the findings are about</span>'
        '<span><i class="baseline"></i>what it is compared with</span></p>'
    )


def _flame(page: Page) -> str:
    if not page.flame:
        return f'<p class="quiet">{escape(page.no_flame)}.</p>'
    where = "all cores" if page.flame_core is None else f"core {page.flame_core}"
    return (
        f'<p class="quiet">Stacks of {where}: orange grew against the calm time, blue shrank. Click to zoom.</p>'
        f'<iframe title="flame graph" sandbox="allow-scripts" srcdoc="{escape(page.flame, quote=True)}"></iframe>'
    )


def _log(page: Page) -> str:
    if not page.marks:
        return '<p class="quiet">Nothing was marked, and the kernel log had no warning, in this time.</p>'
    rows = "".join(
        f'<tr class="{escape(mark.severity)}"><td>{clock_text(mark.wall, page.zone)}</td><td>{escape(mark.kind)}</td>'
        f"<td>{escape(visible(mark.text))}</td></tr>"
        for mark in page.marks
    )
    more = f'<p class="quiet">and {page.marks_left_out:,} more</p>' if page.marks_left_out else ""
    return f'<div class="wide"><table>{rows}</table></div>{more}'


def _ruled_out(page: Page) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.cause)}</td><td>{escape(visible(each.why))}</td></tr>"
        for each in page.diagnosis.ruled_out
    )
    return f'<div class="wide"><table>{rows}</table></div>' if rows else '<p class="quiet">Nothing.</p>'


def _blind_spots(page: Page) -> str:
    items = "".join(f"<li>{escape(visible(each.text))}</li>" for each in page.diagnosis.blind_spots)
    return f"<ul>{items}</ul>" if items else '<p class="quiet">Nothing that is known to be missing.</p>'


def _data(page: Page) -> dict[str, Any]:
    """What the pictures are drawn from. Times are seconds since the beginning of the axis."""
    diagnosis = page.diagnosis
    return {
        "version": 1,
        "since": page.axis.since // 10**9,
        "offset": page.offset_s,
        "cells": page.axis.cells,
        "cell": page.axis.cell_nanos / 1e9,
        "curve": page.curve.permille,
        "curveCpu": page.curve.cpus,
        "rows": [row.label for row in page.rows],
        "values": _packed([row.values for row in page.rows], _STEP),
        "states": _packed([row.dominant for row in page.rows], 1),
        "step": _STEP,
        "stateNames": list(CORE_STATES),
        "hues": [BY_NAME["softirq" if name == "irq" else name].hue for name in CORE_STATES],
        "culprits": sorted({f.culprit.cpu for f in _grave(page) if f.culprit.cpu is not None}),
        "cpusOfRows": [row.cpus for row in page.rows],
        "focus": _seconds(page, diagnosis.focus),
        "baseline": _seconds(page, diagnosis.baseline),
        "marks": [
            {"at": (mark.wall - page.axis.since) / 1e9, "text": visible(mark.text), "severity": mark.severity}
            for mark in page.marks
        ],
    }


def _seconds(page: Page, window: tuple[int, int]) -> list[float] | None:
    if window[1] <= window[0]:
        return None
    return [(moment - page.axis.since) / 1e9 for moment in window]


def _packed(rows: list[Any], step: int) -> str:
    if not rows:
        return ""
    cells = np.stack(rows).astype(np.int64)
    return base64.b64encode(np.where(cells == GAP, _UNRECORDED, cells // step).astype(np.uint8).tobytes()).decode()


def _asset(name: str) -> str:
    return files("exhume.present").joinpath("assets", name).read_text(encoding="utf-8")
