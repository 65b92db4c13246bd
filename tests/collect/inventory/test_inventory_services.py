"""Units and containers without what may hold secrets, and how the boot went."""

import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.inventory.node_tree import NodeTree
from tests.parts import examples

from exhume.collect.inventory.child import packed, stable_digest
from exhume.collect.inventory.files import NodeFiles
from exhume.collect.inventory.reader import Section
from exhume.collect.inventory.services import bare, read_boot
from exhume.model.audit import Condition, Exit, History, Manager, Service, Wants
from exhume.model.inventory import Outcome
from exhume.model.inventory.codec import missing_of, section_of, section_text

FULL = Service(
    *(Manager.SYSTEMD, "agent.service", "agent.service"),
    description="hunter2",
    state="failed",
    detail="token=hunter2",
    result="exit-code",
    pid=77,
    age_s=1.5,
    restarts=3,
    last_exit=Exit(5, code=22),
    command="/agent --password hunter2",
    starts=("/agent --password hunter2",),
    log=("hunter2",),
    directory="/hunter2",
    cgroup="/hunter2",
    drop_ins=(*(f"/etc/{number}.conf" for number in range(40)), "/etc/systemd/system/a.d/90-exhume.conf"),
    wants=Wants(failed=("first.service",), after=("hunter2.target",)),
    conditions=(Condition("ConditionX", "x", True), Condition("ConditionEnvironment", "API_KEY=hunter2", False)),
    history=History("journal", 24.0, 9, 9, exits=(Exit(5, code=1),) * 10, restarted_at=(1,) * 2000),
)


def test_a_service_keeps_what_explains_its_state_and_nothing_that_may_hold_secrets():
    found = bare(FULL)
    assert "hunter2" not in section_text("units", (found,))
    assert (found.state, found.result, found.restarts, found.last_exit) == ("failed", "exit-code", 3, Exit(5, code=22))
    assert found.wants.failed == ("first.service",) and [each.name for each in found.conditions] == [
        "ConditionEnvironment"
    ]
    assert len(found.drop_ins) == 20 and found.held_back
    assert len(found.history.exits) == 5 and not found.history.restarted_at
    assert found.pid is None and not found.log and found.command is None


@examples(100)
@given(st.text(), st.text(), st.lists(st.text(), max_size=50))
def test_any_names_are_bounded_and_can_be_stored(name, state, names):
    service = replace(FULL, id=name, name=name, state=state, absent=tuple(names), wants=Wants(failed=tuple(names)))
    text = section_text("units", (bare(service),))
    text.encode()
    assert len(section_of("units", text)[0].absent) <= 20


def test_the_digest_moves_with_the_state_and_not_with_time():
    def digest(service: Service) -> str:
        return stable_digest(section_text("units", (bare(service),)), "")

    later = replace(FULL, age_s=99.0, restarts=5, last_exit=Exit(9, code=22), history=History("journal", 24.0, 50, 50))
    assert digest(later) == digest(FULL)
    assert digest(replace(FULL, restarts=12)) != digest(FULL)
    assert digest(replace(FULL, state="active")) != digest(FULL)
    assert stable_digest("", "[]") != stable_digest("", "")


def unpacked(section: Section) -> tuple[list[str], str]:
    """The head of what the child writes, and the content behind it."""
    head, _, body = packed(section).partition(b"\n")
    *parts, size, length = head.decode().split("\t")
    content = zlib.decompress(body).decode()
    assert (len(content.encode()), len(body)) == (int(size), int(length))
    return parts, content


def test_what_the_child_writes_has_a_head_in_one_line():
    odd = replace(FULL, id="a\tb\nc.service", name="x")
    (name, digest, missing), content = unpacked(Section("units", (bare(odd),)))
    assert (name, missing) == ("units", "") and len(digest) == 16
    assert section_of("units", content)[0].id == "a\tb\nc.service"


def test_a_section_that_is_too_large_is_named(monkeypatch):
    monkeypatch.setattr("exhume.collect.inventory.child.MOST_BYTES", 10)
    (_, _, missing), content = unpacked(Section("units", (bare(FULL),)))
    assert content == "" and [each.reason for each in missing_of(missing)] == ["truncated"]


def boot(tree: NodeTree, units):
    tree.write("/proc/uptime", "700000.25 1.0\n")
    return read_boot(NodeFiles(tree.root, "boot"), units)


def test_a_bootstrap_unit_that_failed_and_kept_another_from_starting(tree: NodeTree):
    failed = Service(Manager.SYSTEMD, "first.service", "first.service", state="failed")
    kept = Service(Manager.SYSTEMD, "agent.service", "a", state="inactive", wants=Wants(failed=("x", "first.service")))
    found = boot(tree, (failed, kept))
    assert found.bootstrap is Outcome.FAILED and found.because == ("first.service",)
    assert found.failed_units == ("first.service",) and found.uptime_s == 700000.25
    # One that nothing depends on failed too, but the bootstrap went on.
    assert boot(tree, (failed,)).bootstrap is Outcome.OK
    assert boot(tree, None).bootstrap is Outcome.UNKNOWN


def test_errors_of_cloud_init(tree: NodeTree):
    tree.write("/run/cloud-init/result.json", json.dumps({"v1": {"datasource": "Ec2", "errors": []}}))
    assert boot(tree, None).bootstrap is Outcome.OK and boot(tree, None).cloud_init == "done"
    stages = {"v1": {"stage": None, "modules-final": {"errors": ["script failed: token=hunter2", "other"]}}}
    tree.write("/run/cloud-init/status.json", json.dumps(stages))
    found = boot(tree, ())
    assert found.bootstrap is Outcome.FAILED and found.because == ("cloud-init",)
    assert found.cloud_init_errors == ("script failed: token=***", "other")


@pytest.mark.parametrize("text", ["", "[]", '{"v1": 5}', '{"v1": {"errors": 5, "init": [1]}}', "nope"])
def test_any_status_of_cloud_init(tree: NodeTree, text):
    tree.write("/run/cloud-init/result.json", text)
    assert boot(tree, None).cloud_init_errors == ()
