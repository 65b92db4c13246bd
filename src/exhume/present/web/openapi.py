"""The OpenAPI document, from the table of endpoints and the models of parameters and answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from exhume import __version__
from exhume.present.web.params import QueryParams
from exhume.present.web.reply import JSON
from exhume.present.web.schemas import API_MODELS, Problem

#: Answers that no model describes, as the `content` of a response.
BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
EVENT_STREAM: dict[str, Any] = {"text/event-stream": {}}
OBJECT = {JSON: {"schema": {"type": "object"}}}
FILES: dict[str, Any] = {media: {} for media in ("text/plain", "application/gzip", JSON, "image/svg+xml", "text/html")}
_REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path below /api/: its parameters, its answer, and the handler that makes it (none: the server itself)."""

    path: str
    params: type[QueryParams]
    answer: type[BaseModel] | dict[str, Any]
    summary: str
    handler: str | None = None

    @property
    def content(self) -> dict[str, Any]:
        if isinstance(self.answer, dict):
            return self.answer
        return {JSON: {"schema": {"$ref": _REFERENCE.format(model=self.answer.__name__)}}}


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole document."""
    _, schemas = models_json_schema([(model, "serialization") for model in API_MODELS], ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {"title": "exhume", "version": __version__},
        "paths": {f"/api/{endpoint.path}": {"get": _operation(endpoint)} for endpoint in endpoints},
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    refused = {JSON: {"schema": {"$ref": _REFERENCE.format(model=Problem.__name__)}}}
    refusals = {str(code): {"description": "refused", "content": refused} for code in (401, 403, 404, 413, 422)}
    return {
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": {"200": {"description": "the answer", "content": endpoint.content}, **refusals},
    }


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    schema = endpoint.params.model_json_schema()
    in_path = [name for name in schema.get("properties", {}) if f"{{{name}}}" in endpoint.path]
    return [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in schema.get("required", ()),
            "description": field.get("description", ""),
            "schema": _without_null(field),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out rather than null."""
    kept = {key: value for key, value in field.items() if key not in ("anyOf", "title", "description", "default")}
    for option in field.get("anyOf", ()):
        if option.get("type") != "null":
            kept |= option
    return kept
