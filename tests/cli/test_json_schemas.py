"""Every --json has a JSON Schema that is shipped, and prints what it says. The fixture `exhume` checks each output of
these tests; here are those of every command, and the rules of the schemas themselves."""

import copy
import importlib.util
import json
from pathlib import Path

import jsonschema
import pytest
from tests.cli.commands.fix.test_fix import PLAN
from tests.cli.test_docs import BY_NAMES
from tests.schema_check import check, check_output, schema, schema_names

from exhume.lab.score import document
from exhume.lab.score.plan import Noise, Outcome, ReportedFinding
from exhume.lab.score.plan import Plan as RunPlan
from exhume.lab.score.tally import Tally
from exhume.model.finding import Severity
from exhume.model.remedy import Change, Effect, Measure, Stretch, Verification, Verified
from exhume.present.fix_view import fix_json, list_json, plan_json
from exhume.present.verify_view import verification_json
from exhume.remedy.ledger import Entry, Fix, Mark, SavedPlan, Shelf, Unreadable

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/json.md"
NOW = 1_780_000_000 * 10**9


def load():
    spec = importlib.util.spec_from_file_location("json_schemas", ROOT / "tools/json_schemas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load()


def test_every_command_with_json_has_a_schema_and_every_schema_a_command():
    with_json = {"-".join(names) for names, flags in BY_NAMES.items() if "--json" in flags}
    assert with_json == schema_names()


def test_the_committed_schemas_are_fresh():
    assert tool.main(["--check"]) == 0, "run tools/json_schemas.py"


@pytest.mark.parametrize("name", sorted(schema_names()))
def test_schemas_are_schemas_and_are_listed(name):
    jsonschema.Draft202012Validator.check_schema(schema(name))
    version = schema(name)["properties"]["version"]["const"]
    command = name.replace("-", " ")
    link = f"[{name}.json](../src/exhume/present/json_schemas/{name}.json)"
    assert f"| `exhume {command} --json` | {version} | {link} |" in DOCUMENT.read_text()


@pytest.mark.parametrize(
    "args",
    [
        *(("info",), ("cores",), ("cores", "--measure", "softirq"), ("events",), ("incidents",)),
        *(("incidents", "--no-findings"), ("diagnose",), ("diagnose", "--last", "4m"), ("health",)),
    ],
    ids=" ".join,
)
def test_of_a_recording(exhume, small_recording, args):
    result = exhume(*args, "--json", "--dir", str(small_recording), check=False)
    assert json.loads(result.stdout)["version"] >= 1


def test_of_a_quiet_recording(exhume, quiet_recording):
    for command in ("info", "cores", "events", "incidents", "diagnose"):
        assert exhume(command, "--json", "--dir", str(quiet_recording), check=False).stdout


def test_of_this_node(exhume, tmp_path):
    for args in (("zombies",), ("inventory",), ("health", "--dir", str(tmp_path))):
        assert exhume(*args, "--json", check=False).stdout
    inventory = tmp_path / "node.json"
    inventory.write_text(exhume("inventory", "--json").stdout)
    assert exhume("compare", str(inventory), str(inventory), "--json").stdout


def test_of_an_import(exhume, tmp_path):
    for name, text in (("stacks.folded", "main;work 3\n"), ("empty.txt", "")):
        (tmp_path / name).write_text(text)
        args = ("import", str(tmp_path / name), "--start", "2026-03-01T03:00:00Z", "--dir", str(tmp_path / "imported"))
        assert exhume(*args, "--json", check=False).stdout


def test_of_a_lake(exhume, tmp_path):
    lake = ("--lake", str(tmp_path / "lake"))
    assert exhume("fleet", "token", "add", "node-1", *lake).stdout
    assert exhume("fleet", "token", "list", *lake, "--json").stdout
    assert exhume("fleet", "compact", *lake, "--json").stdout


def test_of_fixes():
    """As they are without root; the tests of machines check what is really applied."""
    saved = SavedPlan("20260528-202640-0001", PLAN, "node-1", "m", "/", "b", NOW)
    entry = Entry(PLAN.steps[0], Mark.DONE, {"was": 1}, NOW, NOW + 1, "", {"freed": 3, "left_because": ["mlocked"]})
    steps = (entry, Entry(PLAN.steps[1]))
    fix = Fix("20260528-202640-0001", "node-1", "m", "/", "b", "zombies", "Freed.", NOW, steps, applied_at=NOW)
    check("fix-plan", in_json(plan_json(saved)))
    for name in ("fix-apply", "fix-rollback"):
        check(name, in_json(fix_json(fix)))
    shelf = Shelf([fix], [Unreadable("20260528-202640-0002", Path("/x"), "cut off")])
    check("fix-list", in_json(list_json(shelf)))
    for value in (None, 3.5):
        stretch = Stretch(value, 60.0, 60, "live")
        effect = Effect(Measure.FORKS, "fall", "loop.service")
        verified = Verified(effect, "a second", stretch, stretch, Change.UNPROVEN, "too few", as_expected=False)
        found = Verification("node-1", fix.id, "zombies", NOW, NOW, NOW + 1, (verified,))
        check("fix-verify", in_json(verification_json(found, None)))


def test_of_a_score():
    reported = ReportedFinding("user-hog", Severity.CRITICAL, 0.9, 1, "hog", "It spins.")
    plan = RunPlan(1, "user-hog", 7, 1, 5.0, 10.0, 5.0, "sleep", noise=Noise.IDLE)
    outcomes = [Outcome(plan, "user-hog", (reported,), 0.5), Outcome(plan, "user-hog", failed="no recording")]
    check("lab-score", in_json(document.as_json(Tally(outcomes), 2, 1)))


def in_json(value: object) -> object:
    return json.loads(json.dumps(value))


def test_what_is_not_in_the_schema_is_noticed(exhume, small_recording):
    args = ("info", "--json", "--dir", str(small_recording))
    found = json.loads(exhume(*args).stdout)
    check_output(args, json.dumps(found))
    for changed in (
        {**found, "more": 1},
        {key: value for key, value in found.items() if key != "node"},
        {**found, "version": 99},
        {**found, "span": {**found["span"], "since": "yesterday"}},
        {**found, "cores": None},
    ):
        with pytest.raises(AssertionError):
            check_output(args, json.dumps(changed))


OLD = {
    "type": "object",
    "properties": {
        "version": {"const": 1},
        "state": {"enum": ["on", "off"]},
        "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
        "value": {"type": ["number", "null"]},
        "last": {"anyOf": [{"$ref": "#/$defs/Step"}, {"type": "null"}]},
    },
    "required": ["version", "state", "steps", "value", "last"],
    "$defs": {
        "Step": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#/$defs/Step"}}},
            "required": ["id", "parts"],
        }
    },
}


def changed(change) -> dict:
    new = copy.deepcopy(OLD)
    change(new, new["properties"], new["$defs"]["Step"])
    return new


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lambda new, top, step: top.update(more={"type": "string"}), []),
        (lambda new, top, step: step["properties"].update(more={"type": "string"}), []),
        (lambda new, top, step: top.update(value={"type": "number"}), []),
        (lambda new, top, step: top.update(state={"enum": ["on"]}), []),
        (lambda new, top, step: top.pop("state"), [".state is gone"]),
        (lambda new, top, step: step["properties"].pop("id"), [".steps[].id is gone"]),
        (lambda new, top, step: new["required"].remove("value"), [".value may be left out"]),
        (lambda new, top, step: top.update(value={"type": ["string", "null"]}), [".value has other values"]),
        (lambda new, top, step: top.update(state={"enum": ["on", "off", "maybe"]}), [".state has other values"]),
        (lambda new, top, step: top["last"]["anyOf"].append({"type": "string"}), [".last has other values"]),
        (lambda new, top, step: top.update(steps={"type": "array", "items": {}}), [".steps[].id is gone"]),
    ],
)
def test_changes_that_break_readers_are_named(change, broken):
    assert tool.breaks(OLD, changed(change))[: len(broken) or None] == broken


def test_a_break_needs_a_new_version(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tool, "TARGET", tmp_path / "schemas")
    made = {"thing": OLD}
    monkeypatch.setattr(tool, "schemas", lambda: made)
    assert tool.main(["--check"]) == 1
    assert tool.main([]) == tool.main(["--check"]) == 0
    made["thing"] = changed(lambda new, top, step: top.pop("state"))
    assert tool.main([]) == 1
    assert "give it a new version" in capsys.readouterr().err
    made["thing"]["properties"]["version"] = {"const": 2}
    assert tool.main([]) == tool.main(["--check"]) == 0
