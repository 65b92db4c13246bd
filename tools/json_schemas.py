"""Generates the JSON Schema of every `--json` from the types of what is printed, into src/exhume/present/json_schemas/.

    tools/json_schemas.py            write them; refuses a change that breaks readers of the same version
    tools/json_schemas.py --check    exit 1 if the committed files are stale

Within a version fields are only added: docs/compatibility.md has the rules.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from exhume.cli.commands import health, import_, info
from exhume.cli.commands.fleet import compact, token
from exhume.diagnose.growth import Growth, Thresholds
from exhume.diagnose.zombie_report import Creator
from exhume.fleet.compare import COMPARISON_VERSION, Comparison, Difference, Side
from exhume.fleet.report import FleetReport
from exhume.lab.score.document import SCORE_VERSION
from exhume.lab.score.plan import Plan as RunPlan
from exhume.lab.score.plan import ReportedFinding
from exhume.model.audit import AUDIT_VERSION, History, Judged, Manager, Service
from exhume.model.clock import WALL, Wall, Window
from exhume.model.facts import MissingSource, RecordingFacts
from exhume.model.finding import (
    ACCOUNTING_VERSION,
    CHECKUP_VERSION,
    DIAGNOSIS_VERSION,
    Accounting,
    Check,
    Diagnosis,
    Evidence,
    Finding,
    Level,
    Remedy,
    RuledOut,
    Verdict,
)
from exhume.model.inventory import INVENTORY_VERSION, Inventory
from exhume.model.remedy import Effect, NotIncluded, Plan, Step, Stretch, Verification, Verified
from exhume.model.zombies import HierarchyCensus, ParentResidual, PinnedFile
from exhume.present import (
    audit_view,
    cores,
    diagnosis_view,
    events_view,
    fix_view,
    fleet_view,
    top_view,
    verify_view,
    zombies_view,
)
from exhume.present.serializer import Shape, Shapes
from exhume.present.zombies_view import PinPattern
from exhume.remedy.ledger import Entry, Fix, FixState, Shelf
from exhume.store.read.events import EventView
from exhume.store.read.health import State
from exhume.store.read.recording import CostOfSource, RecordingInfo, SelfCost

TARGET = Path(__file__).resolve().parents[1] / "src/exhume/present/json_schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "string"}
# An object that is put together by hand: the types of its fields by name. In types, `[X]` is a list of such objects,
# `{str: X}` a mapping to them, and `(X, None)` is one that may be null.
Record = dict[str, Any]
# The keys that `add` of a shape adds, or whose values it replaces.
Added = Mapping[type, Record]


@dataclass(slots=True)
class Types:
    """Turns types into schemas, by the rule of the serializer; dataclasses become definitions. `sparse`: fields with a
    default are left out (inventories). `finite`: a number that JSON can't have is null."""

    shapes: Shapes = field(default_factory=dict)
    added: Added = field(default_factory=dict)
    sparse: bool = False
    finite: bool = False
    definitions: dict[str, Any] = field(default_factory=dict)

    def schema(self, hint: Any) -> dict[str, Any]:
        """The schema of one type."""
        if isinstance(hint, list):
            return {"type": "array", "items": self.schema(hint[0])}
        if isinstance(hint, tuple):
            return {"anyOf": [self.schema(hint[0]), {"type": "null"}]}
        if isinstance(hint, dict) and str in hint:
            return {"type": "object", "additionalProperties": self.schema(hint[str])}
        if isinstance(hint, dict):
            return {
                "type": "object",
                "properties": {name: self.schema(each) for name, each in hint.items()},
                "required": list(hint),
            }
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return {"type": "string", "format": "date-time"} if WALL in hint.__metadata__ else self.schema(args[0])
        if origin is Literal:
            return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
        if origin in (Union, UnionType):
            return self._union(args)
        if origin in (list, tuple, Sequence, Collection):
            if origin is tuple and args[-1] is not ...:
                return {"type": "array", "prefixItems": [self.schema(each) for each in args], "items": False}
            return {"type": "array", "items": self.schema(args[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.schema(args[1])}
        if hint in (Any, object):
            return {}
        if hint is float and self.finite:
            return {"type": ["number", "null"]}
        if hint is NoneType or hint in SCALARS:
            return {"type": "null" if hint is NoneType else SCALARS[hint]}
        if issubclass(hint, Enum):
            return {"enum": [each.value for each in hint]}
        return self._reference(hint)

    def _union(self, args: Sequence[Any]) -> dict[str, Any]:
        parts = [self.schema(each) for each in args]
        if all(set(part) == {"type"} for part in parts):
            kinds = [kind for part in parts for kind in _listed(part["type"])]
            return {"type": list(dict.fromkeys(kinds))}
        return {"anyOf": parts}

    def _reference(self, kind: type) -> dict[str, Any]:
        if kind.__name__ not in self.definitions:
            # First, since a type may hold itself.
            self.definitions[kind.__name__] = {}
            made = {"description": " ".join((kind.__doc__ or "").split())} | self.schema(self.fields(kind))
            made["required"] = self.required(kind, made["required"])
            self.definitions[kind.__name__] = made
        return {"$ref": f"#/$defs/{kind.__name__}"}

    def required(self, kind: type, names: list[str]) -> list[str]:
        """Those of its keys that are always there."""
        if not self.sparse:
            return names
        assert is_dataclass(kind)
        always = {each.name for each in fields(kind) if each.default is each.default_factory is MISSING}
        return [name for name in names if name in always]

    def fields(self, kind: type) -> Record:
        """The keys of a dataclass, with their types: its fields as its shape has them, and what is added."""
        assert is_dataclass(kind), f"{kind} is not a type of JSON"
        hints, shape = get_type_hints(kind, include_extras=True), self.shapes.get(kind, Shape())
        # A shape that adds something which is not listed here would be found by no check.
        assert (shape.add is not None) <= (kind in self.added), f"{kind.__name__} has keys of unknown types"
        own = {
            shape.rename.get(each.name, each.name): hints[each.name]
            for each in fields(kind)
            if each.name not in shape.omit
        }
        return own | self.added.get(kind, {})


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _version(number: int) -> Any:
    return Literal[number]


DIAGNOSED: Added = {
    Diagnosis: {
        "window": Window,
        "focus": Window,
        "baseline": Window | None,
        "sentence": str,
        "blind_spots": list[str],
    },
    Finding: {"why_not_sure": list[str], "doubts": list[str], "focus": Window},
    Accounting: {"version": _version(ACCOUNTING_VERSION), "sentence": str},
    Evidence: {"where": str, "match": dict[str, str]},
    Remedy: {"fix_target": str | None, "command": str, "cost": str},
    RuledOut: {"values": dict[str, float | int | str | None]},
}
FIXES: Added = {
    Step: {"automatic": bool, "cpu_seconds": float, "files": [{"path": str, "content": str}]},
    NotIncluded: {"command": str},
    Fix: {
        "planned_at": Wall,
        "applied_at": Wall | None,
        "finished_at": Wall | None,
        "rollback_at": Wall | None,
        "state": FixState,
        "steps": tuple[Entry, ...],
    },
    Entry: {"id": str, "title": str, "automatic": bool, "began_at": Wall | None, "ended_at": Wall | None},
}


def schemas() -> dict[str, dict[str, Any]]:
    """The schema of each output, by the name of its file."""
    found = {
        "audit": _of_audit(),
        "diagnose": _of_diagnosis(),
        "doctor": _of_checkup(),
        "fleet-compact": _of_compaction(),
        "fleet-report": _of_fleet(),
        "fleet-token-list": _document(Types(), token.JSON_VERSION, {"tokens": [{"node": str, "added_at": Wall}]}),
        "health": _of_health(),
        "import": _of_import(),
        "info": _of_info(),
        "inventory": _of_inventory(),
        "compare": _of_comparison(),
        "lab-score": _of_score(),
        "top": _of_top(),
        "zombies": _of_zombies(),
        **_of_events(),
        **_of_fixes(),
    }
    return {name: {"$schema": DIALECT, "$id": f"urn:exhume:json:{name}", **schema} for name, schema in found.items()}


def _document(types: Types, version: int, record: Record) -> dict[str, Any]:
    """The schema of a whole output."""
    schema = types.schema({"version": _version(version), **record})
    return schema | ({"$defs": types.definitions} if types.definitions else {})


def _of_diagnosis() -> dict[str, Any]:
    types = Types(diagnosis_view._SHAPES, DIAGNOSED)
    return _document(types, DIAGNOSIS_VERSION, types.fields(Diagnosis))


def _of_checkup() -> dict[str, Any]:
    types = Types(diagnosis_view._SHAPES, DIAGNOSED)
    record = {
        **{"node": str, "verdict": Level, "sentence": str, "looked_seconds": float, "checks": list[Check]},
        "missing": list[MissingSource],
        "diagnosis": {"version": _version(DIAGNOSIS_VERSION), **types.fields(Diagnosis)},
    }
    return _document(types, CHECKUP_VERSION, record)


def _of_info() -> dict[str, Any]:
    types = Types(info._SHAPES, {SelfCost: {"rss_bytes_max": int}, CostOfSource: {"reason": (str, None)}})
    record = {**types.fields(RecordingFacts), "live": bool, "sealed": bool, **types.fields(RecordingInfo)}
    return _document(types, info.JSON_VERSION, record)


def _of_events() -> dict[str, dict[str, Any]]:
    """Events, incidents and cores, which all list events."""
    of_events, of_incidents, of_cores = (Types(events_view._SHAPES) for _ in range(3))
    mark = {**of_incidents.fields(EventView), "verdict": Verdict | None, "finding": Finding | None}
    worst = {"since": Wall, "until": Wall, "cpu": int, "measure": str, "state": str, "permille": int}
    grid = {
        **{"node": str, "window": Window, "measure": str, "cells": int, "cell_seconds": float, "worst": (worst, None)},
        "cores": [{"cpu": int, "permille": list[int | None], "state": list[str | None]}],
        "marks": list[EventView],
    }
    events = {"node": str, "events": list[EventView]}
    return {
        "events": _document(of_events, events_view.JSON_VERSION, events),
        "incidents": _document(of_incidents, events_view.JSON_VERSION, {"node": str, "incidents": [mark]}),
        "cores": _document(of_cores, cores.JSON_VERSION, grid),
    }


def _of_top() -> dict[str, Any]:
    types = Types(top_view._SHAPES, {top_view.TopFrame: {"cores": list[top_view.CoreUsage]}})
    return _document(types, top_view.JSON_VERSION, types.fields(top_view.TopFrame))


def _of_health() -> dict[str, Any]:
    record = {
        **{"directory": str, "state": State, "problems": list[str], "recording": bool, "last_tick": Wall | None},
        **{"age_seconds": float | None, "uptime_seconds": float | None, "losses": dict[str, int]},
        **{"losses_seconds": int, "rate_hz": int | None, "requested_rate_hz": int | None},
        **{"cpu_percent": float | None, "rss_bytes": int | None, "pid": int | None, "exhume_version": str | None},
        "sources_missing": list[MissingSource],
    }
    return _document(Types(), health.JSON_VERSION, record)


def _of_import() -> dict[str, Any]:
    problem = {"reason": str, "offset": int | None, "count": int}
    file = {
        **{"file": str, "format": str, "known": bool, "rows": dict[str, int], "others": dict[str, int]},
        **{"missing": list[MissingSource], "left_out": [problem], "error": (problem, None)},
    }
    record = {
        **{"directory": str, "complete": bool, "segments": int, "bytes": int, "files": [file]},
        "losses": [{"kind": str, "milliseconds": int, "text": str}],
    }
    return _document(Types(), import_.JSON_VERSION, record)


def _of_zombies() -> dict[str, Any]:
    types = Types(
        zombies_view._SHAPES,
        {
            HierarchyCensus: {"memory_estimated": bool | None, "note": str | None},
            Growth: {},
            PinnedFile: {"cgroup": str | None},
            PinPattern: {"cgroup": str | None, "files": int, "pages": int, "bytes": int, "certain": bool},
        },
    )
    leaker = {
        **{"pattern": str, "zombies": int, "made": int, "per_hour": float | None, "first": Wall, "last": Wall},
        **{"example": str, "creators": [{"comm": str | None, "count": int}], "creator": Creator | None},
        "containers": [{"id": str | None, "name": str | None, "image": str | None, "count": int}],
    }
    pins = {
        **{"expected_bytes": int | None, "found_bytes": int, "files_looked_at": int, "seconds": float},
        **{"patterns": list[PinPattern], "files": list[PinnedFile], "files_left_off": int},
    }
    explanation = {
        "parents": [{**types.fields(ParentResidual), "recorded_zombies": int | None}],
        **{"pins": pins, "recorded": Window | None, "leakers": ([leaker], None), "blind_spots": list[str]},
    }
    levels = Literal["well", "growing", "many", "unknown"]
    record = {
        **{"node": str, "time": Wall, "verdict": levels, "summary": str, "reasons": list[str]},
        **{"thresholds": Thresholds, "zombies": int | None},
        "hierarchies": [{**types.fields(HierarchyCensus), "growth": Growth | None}],
        "kernel_memory": {"slab_bytes": int | None, "percpu_bytes": int | None},
        **{"blind_spots": list[str], "explanation": (explanation, None)},
    }
    return _document(types, zombies_view.JSON_VERSION, record)


def _of_audit() -> dict[str, Any]:
    types = Types(audit_view._SHAPES, {History: {"success_rate": float | None}})
    service = {
        **{"key": str, **types.fields(Judged), "troubled": bool, "look": str | None, "next": str | None},
        **types.fields(Service),
    }
    record = {
        **{"node": str, "taken_at": Wall, "sentence": str, "managers": list[Manager], "audited": int, "healthy": int},
        **{"troubled": int, "services": [service], "blind_spots": list[str]},
    }
    return _document(types, AUDIT_VERSION, record)


def _of_inventory() -> dict[str, Any]:
    types = Types(sparse=True)
    record = types.fields(Inventory)
    schema = _document(types, INVENTORY_VERSION, record)
    return schema | {"required": ["version", *types.required(Inventory, list(record))]}


def _of_comparison() -> dict[str, Any]:
    types = Types({Side: Shape(omit=("counts",))}, {Difference: {"text": str}})
    return _document(types, COMPARISON_VERSION, {"different": bool, **types.fields(Comparison)})


def _of_fixes() -> dict[str, dict[str, Any]]:
    planned, applied, listed = (Types(fix_view._SHAPES, FIXES) for _ in range(3))
    proven = Types(
        verify_view._SHAPES,
        {Verified: Types().fields(Effect), Stretch: {"value": float | None, "seconds": float}},
    )
    verified = {
        **proven.fields(Verification),
        **{"applied_at": Wall, "looked": {"since": Wall, "until": Wall}, "verdict": str, "sentence": str},
        "not_ruled_out": list[str],
    }
    plan = {"node": str, "id": str, "made_at": Wall, **planned.fields(Plan)}
    return {
        "fix-plan": _document(planned, fix_view.VERSION, plan),
        **dict.fromkeys(("fix-apply", "fix-rollback"), _document(applied, fix_view.VERSION, applied.fields(Fix))),
        "fix-list": _document(listed, fix_view.VERSION, listed.fields(Shelf)),
        "fix-verify": _document(proven, verify_view.VERSION, verified),
    }


def _of_fleet() -> dict[str, Any]:
    types = Types(finite=True)
    verdicts = Literal["separated", "scattered", "at-risk", "healthy"]
    return _document(types, fleet_view.REPORT_VERSION, {"verdict": verdicts, **types.fields(FleetReport)})


def _of_compaction() -> dict[str, Any]:
    counted = ("partitions", "files", "rows", "repeats", "bytes_before", "bytes_after", "removed")
    damaged = {"damaged": [{"path": str, "reason": str}]}
    return _document(Types(), compact.JSON_VERSION, {**dict.fromkeys(counted, int), **damaged})


def _of_score() -> dict[str, Any]:
    types = Types()
    counted = {"runs": int, "right": int}
    run = {
        **types.fields(RunPlan),
        **{"cause": str, "top": str, "also_cause": str | None, "right": bool, "core_right": bool | None},
        **{"answer_s": float | None, "others_busy": float, "failed": str | None, "names": list[str]},
        **{"owners": list[str] | None, "also_owners": list[str] | None, "lost_s": float, "explained_s": float},
        "findings": list[ReportedFinding],
    }
    target = {
        **{"measure": str, "must": float, "aim": float, "value": float | None, "runs": int, "unit": str},
        "missed": bool,
    }
    level = {
        **{"single": counted, "pairs": {"runs": int, "both_found": int}, "healthy": {**counted, "criticals": int}},
        "lost_time_explained": float | None,
    }
    record = {
        **{"seed": int, "planned": int, "targets": [target], "runs": [run], "matrix": dict[str, dict[str, int]]},
        "scenarios": {str: {"runs": int, "right": int, "failed": int, "share": float | None}},
        **{"noise": {str: level}, "causes": {str: {"precision": float | None, "recall": float | None}}},
        **{"share": float | None, "false_criticals": int, "answer_s": ({"median": float, "max": float}, None)},
        "calibration": [{"since": float, "until": float, "reported": int, "right": int}],
        "missed": list[str],
    }
    return _document(types, SCORE_VERSION, record)


def breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What a reader of documents of the old schema may stumble over in those of the new one."""
    seen: set[tuple[str, str]] = set()

    def resolved(schema: Any, root: Mapping[str, Any]) -> Any:
        return root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def compare(a: Any, b: Any, path: str) -> Iterator[str]:
        if "$ref" in a and "$ref" in b:
            if (a["$ref"], b["$ref"]) in seen:
                return
            seen.add((a["$ref"], b["$ref"]))
        a, b = resolved(a, old), resolved(b, new)
        for name, each in a.get("properties", {}).items():
            if name not in b.get("properties", {}):
                yield f"{path}.{name} is gone"
                continue
            if name in a["required"] and name not in b["required"]:
                yield f"{path}.{name} may be left out"
            yield from compare(each, b["properties"][name], f"{path}.{name}")
        for inner in ("items", "additionalProperties"):
            if isinstance(a.get(inner), dict):
                yield from compare(a[inner], b.get(inner) or {}, f"{path}[]")
        if "anyOf" in a or "anyOf" in b:
            yield from alternatives(_alternatives(a), _alternatives(b), path)
        elif not _values(b, "type") <= _values(a, "type") or not _values(b, "enum") <= _values(a, "enum"):
            yield f"{path} has other values"

    def alternatives(a: list[Any], b: list[Any], path: str) -> Iterator[str]:
        for each in b:
            if all(list(compare(one, each, path)) for one in a):
                yield f"{path} has other values"

    return list(compare(old, new, ""))


def _alternatives(schema: Any) -> list[Any]:
    return list(schema.get("anyOf", [schema]))


def _values(schema: Any, key: str) -> set[str]:
    found = schema.get(key, [schema["const"]] if key == "enum" and "const" in schema else [])
    return {json.dumps(each) for each in _listed(found)}


def main(argv: list[str]) -> int:
    made = {f"{name}.json": json.dumps(schema, indent=1) + "\n" for name, schema in schemas().items()}
    there = {path.name: path.read_text() for path in TARGET.glob("*.json")}
    if argv == ["--check"]:
        stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
        if stale:
            print(f"{', '.join(stale)}: stale; run tools/json_schemas.py", file=sys.stderr)
        return bool(stale)
    if argv:
        print(__doc__, file=sys.stderr)
        return 2
    for name in made.keys() & there.keys():
        old, new = json.loads(there[name]), json.loads(made[name])
        same_version = old["properties"]["version"] == new["properties"]["version"]
        if same_version and (broken := breaks(old, new)):
            print(f"{name}: {'; '.join(broken)}: give it a new version", file=sys.stderr)
            return 1
    TARGET.mkdir(exist_ok=True)
    for name, text in made.items():
        (TARGET / name).write_text(text)
    for name in there.keys() - made.keys():
        (TARGET / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
