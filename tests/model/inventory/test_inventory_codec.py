"""Inventories survive their JSON, and whatever else comes as one is refused."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parts import examples

from exhume.model.audit import Condition, Exit, History, Manager, Service, Wants
from exhume.model.inventory import (
    SECTIONS,
    Boot,
    Inventory,
    Kernel,
    Missing,
    Nic,
    Outcome,
    Packages,
    Reason,
    assemble,
    bucket,
)
from exhume.model.inventory.codec import (
    inventory_json,
    inventory_of,
    missing_of,
    missing_text,
    section_of,
    section_text,
)

NOW = 1_763_427_600_123_456_789
UNIT = Service(
    *(Manager.SYSTEMD, "agent.service", "agent.service"),
    state="activating",
    detail="auto-restart",
    restarts=812,
    last_exit=Exit(NOW - 5, code=5),
    wants=Wants(failed=("between.service", "first.service")),
    conditions=(Condition("ConditionPathExists", "/etc/x", False, negated=True),),
    history=History("journal", 24.0, 9, 9, 4.5, (Exit(NOW - 5, code=5), Exit(None, signal=9))),
)
WHOLE = Inventory(
    *("node-1", NOW),
    kernel=Kernel("6.1.0", "#1 SMP", ("quiet", "root=UUID=x"), 0, "madvise", {"meltdown": "Mitigation: PTI"}),
    packages=Packages("dpkg", {"bash": "5.2", "ünïcode": "1"}),
    sysctls={},
    nics=(Nic("eth0", "ena", mtu=9001, queues={"0": "3"}),),
    units=(UNIT,),
    boot=Boot(NOW - 10**12, 1000.0, bootstrap=Outcome.FAILED, because=("first.service",)),
    missing=(Missing("containers", Reason.PERMISSION, "run as root"),),
)


def test_an_inventory_is_the_same_after_its_json():
    text = json.dumps(inventory_json(WHOLE))
    assert inventory_of(text) == WHOLE
    assert json.loads(text)["version"] == 1
    assert json.loads(text)["taken_at"].startswith("2025-11-18T01:00:00.123456789")


def test_an_empty_section_is_not_a_missing_one():
    data = inventory_json(WHOLE)
    assert data["sysctls"] == {} and "limits" not in data
    assert inventory_of(json.dumps(data)).limits is None


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_survives_alone(section):
    value = getattr(WHOLE, section)
    if value is not None:
        assert section_of(section, section_text(section, value)) == value


def test_missing_parts_survive():
    parts = (Missing("nics.eth0.firmware", Reason.FAILED), *WHOLE.missing)
    assert missing_of(missing_text(parts)) == parts
    assert parts[0].top == "nics"


def test_a_section_that_is_not_there_is_named_with_a_reason():
    found = assemble(
        "n", NOW, {"packages": None, "sysctls": {}}, [Missing("packages", Reason.PERMISSION)], {"zone": "a"}
    )
    reasons = {each.section: each.reason for each in found.missing}
    assert reasons["packages"] is Reason.PERMISSION and reasons["units"] is Reason.ABSENT
    assert "sysctls" not in reasons and "labels" not in reasons
    assert {*reasons, "sysctls", "labels"} == set(SECTIONS)
    assert found.labels == {"zone": "a"}


def test_fields_of_later_versions_are_ignored_but_a_later_version_is_refused():
    data = inventory_json(WHOLE) | {"colour": "red"}
    assert inventory_of(json.dumps(data)) == WHOLE
    with pytest.raises(ValueError, match="newer"):
        inventory_of(json.dumps(data | {"version": 2}))


@pytest.mark.parametrize(
    "change",
    [
        {"node": 5},
        {"taken_at": "yesterday or so"},
        {"taken_at": 5},
        {"nics": {"eth0": {}}},
        {"nics": [{"driver": "ena"}]},
        {"nics": [{"name": "eth0", "mtu": True}]},
        {"sysctls": {"a": 1}},
        {"boot": {"uptime_s": math.inf}},
        {"boot": {"uptime_s": math.nan}},
        {"boot": {"uptime_s": 10**300}},
        {"hardware": {"memory_bytes": 10**30}},
        {"units": [{"manager": "launchd", "id": "a", "name": "a"}]},
        {"units": [[]]},
        {"os": "Debian"},
        {"missing": [{"section": "os", "reason": "dunno"}]},
        {"labels": {"a": "\ud800"}},
    ],
)
def test_what_has_another_shape_is_refused(change):
    with pytest.raises(ValueError):
        inventory_of(json.dumps(inventory_json(WHOLE) | change))


@pytest.mark.parametrize("text", ["", "[]", "5", "{}", '{"version": 1}', "{" * 100_000, '{"version": "1", "node": ""}'])
def test_what_is_none_is_refused(text):
    with pytest.raises(ValueError):
        inventory_of(text)


@examples(100)
@given(st.dictionaries(st.text(), st.text()), st.lists(st.text()))
def test_any_names_survive(values, texts):
    found = Inventory("n", NOW, sysctls=values, kernel=Kernel(cmdline=tuple(texts)))
    assert inventory_of(json.dumps(inventory_json(found))) == found


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@examples(200)
@given(st.dictionaries(st.sampled_from([*SECTIONS, "missing", "node"]), _JSON, max_size=4))
def test_anything_else_is_refused_in_one_way(data):
    try:
        inventory_of(json.dumps({"version": 1, "node": "n", "taken_at": "2025-01-01T00:00:00Z"} | data))
    except ValueError as error:
        assert str(error)


def test_restarts_are_counted_in_steps():
    assert [bucket(number) for number in (0, 1, 9, 10, 99)] == ["0", "1-9", "1-9", "10-99", "10-99"]
    assert bucket(100) == bucket(10**6) == "100+"
