"""Fills a report's data into the template that Vite builds from `web/report.html`."""

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Literal

from exhume.model.errors import ExhumeError

Kind = Literal["flame", "diagnosis", "verify"]

# `web/report.html` has both once, outside of scripts and styles.
_TITLE, _DATA = "<!--report-title-->", "<!--report-data-->"


def render(kind: Kind, data: Mapping[str, Any]) -> str:
    """The report as one HTML file. `data` is a `FlameReport`, `DiagnosisReport` or `VerifyReport` without its kind."""
    before, _, rest = template().partition(_TITLE)
    between, _, after = rest.partition(_DATA)
    content = embedded_json({"kind": kind, **data})
    return "".join((before, escape(str(data["title"])), between, content, after))


def embedded_json(data: Any) -> str:
    """JSON for a script element: no string in it can end the element or open a comment."""
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def template() -> str:
    """The built template: scripts and styles inlined, with a policy that allows them by hash."""
    try:
        return files("exhume.present").joinpath("web", "report", "report.html").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ExhumeError("the report template is not built; run `make web`, or install a released wheel") from None
