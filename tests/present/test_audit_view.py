"""An audit as it is printed and as JSON: the worst first, hostile text harmless, every field documented."""

import json
import re
from datetime import UTC
from pathlib import Path

import pytest
from tests.diagnose.audit.audit_scenes import NOW, SINCE, answered, but, container, facts, held, looping, unit, whole

from exhume.cli.commands.audit import _narrowed
from exhume.model.audit import Costs, Exit, Wants
from exhume.model.errors import UsageError
from exhume.model.text import duration
from exhume.present.audit_view import audit_json, cost_text, headline
from exhume.present.terminal.audit import audit_lines

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "evil \x1b[2J\x07 $(reboot) `id` ü \u202e.service"


def scene(**more):
    failed = unit("bootstrap.service", "failed", "failed", last_exit=Exit(NOW, 7), log=("fetch: no such host",))
    services = [
        looping("ecs.service", log=("NoCredentialProviders",) * 4),
        failed,
        unit("late.service", "inactive", "dead", wants=Wants(failed=(failed.id,))),
        unit("idle.service", "inactive", "dead", conditions=(held("ConditionPathExists", "/etc/x", False),)),
        unit("datadog-agent.service"),
        container("web"),
    ]
    known = answered(services[4], False) | answered(services[0], None)
    return whole(*services, answers=known, **more)


def printed(audit, width=100, **more) -> str:
    return "\n".join(line.plain for line in audit_lines(audit, UTC, width, **more))


def test_the_first_lines_name_the_worst_and_whether_it_is_needed():
    first = printed(scene()).splitlines()
    assert "CRASH LOOP" in first[0] and "ecs.service crash-loops" in first[0]
    assert "nothing here needs it" in " ".join(first[:2])


def test_each_in_trouble_has_its_reason_and_its_next_command():
    text = printed(scene())
    for name in ("ecs.service", "bootstrap.service", "late.service"):
        assert f"exhume fix plan {name}" in text
    assert "because bootstrap.service, which it requires, failed" in " ".join(text.replace("│", "").split())
    assert "has no credentials" in text
    assert "NoCredentialProviders  (4 times)" in text


def test_what_is_only_on_or_held_back_is_one_line():
    text = printed(scene())
    assert "exhume fix plan datadog-agent.service" not in text
    assert "datadog-agent.service  not needed here" in text
    assert "ConditionPathExists=/etc/x did not hold" in text
    assert "docker:web" not in text and "docker:web" in printed(scene(), everything=True)


def test_a_node_that_is_well_says_so():
    audit = whole(unit())
    assert printed(audit).startswith(" WELL ")
    assert headline(audit) == "none of 1 service is in trouble"


@pytest.mark.parametrize("width", [60, 100, 120])
def test_lines_fit_the_terminal(width):
    long = looping("long-" * 49 + "x.service", log=("word " * 99,))
    # Commands are for copying: they are never broken.
    lines = [line for line in audit_lines(scene(), UTC, width) if "▶" not in line.plain]
    lines += [line for line in audit_lines(whole(long, unit()), UTC, width, everything=True) if "▶" not in line.plain]
    assert max(line.cell_len for line in lines) <= width


def test_hostile_text_cannot_drive_the_terminal():
    bad = looping(HOSTILE, description=HOSTILE, log=(HOSTILE,), image=HOSTILE, wants=Wants(wanted_by=(HOSTILE,)))
    for everything in (False, True):
        text = printed(whole(bad, but(bad, id=HOSTILE + "2")), everything=everything)
        assert all(character.isprintable() or character == "\n" for character in text)
    command = next(line for line in text.splitlines() if "fix plan" in line)
    assert "'" in command


def test_json_has_every_field_on_every_service_and_the_page_explains_each():
    shape = json.loads(json.dumps(audit_json(scene(), UTC, everything=True)))
    services = shape["services"]
    assert shape["version"] == 1 and len(services) == 6
    assert {tuple(each) for each in services} == {tuple(services[0])}
    page = set(re.findall(r"`(\w+)`", (ROOT / "docs/commands/audit.md").read_text()))
    assert names_in(shape) <= page


def names_in(value) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(names_in, value)) if value else set()
    return set(value) | set().union(*map(names_in, value.values())) if isinstance(value, dict) else set()


def test_two_nodes_that_differ_in_one_unit_differ_in_that_alone():
    """The agent loops on one node; on the other its bootstrap failed, so that it never started."""
    others = [unit("a.service"), unit("z.service"), container("web")]
    one = [looping("agent.service"), unit("bootstrap.service", detail="exited"), *others]
    failed = unit("bootstrap.service", "failed", "failed", last_exit=Exit(NOW, 7))
    other = [unit("agent.service", "inactive", "dead", wants=Wants(failed=(failed.id,))), failed, *others]
    shapes = [audit_json(whole(*each), UTC, everything=True)["services"] for each in (one, other)]
    assert [each["key"] for each in shapes[0]] == [each["key"] for each in shapes[1]]
    differ = [a["key"] for a, b in zip(*shapes, strict=True) if a != b]
    assert differ == ["agent.service", "bootstrap.service"]
    why = next(each for each in shapes[1] if each["key"] == "agent.service")["explained"][0]
    assert "bootstrap.service" in why and "failed" in why


def test_names_narrow_it_down():
    audit = scene()
    assert [each.service.key for each in _narrowed(audit, ["web", "ecs"]).services] == ["ecs.service", "docker:web"]
    assert _narrowed(audit, []) is audit
    with pytest.raises(UsageError, match="no unit or container here is called 'unknown'"):
        _narrowed(audit, ["unknown"])


def test_costs_say_where_they_are_from():
    costs = Costs("recording", 900.0, 12.34, None, 225, 223, 225)
    assert cost_text(costs) == (
        "12.3 s of CPU, 225 cgroups made and 223 leaked, 225 starts of its program in the last "
        f"{duration(900 * 10**9)} of the recording"
    )
    assert cost_text(Costs("live", 3.0, 0.01, 2048)) == "2.0 KiB of memory now"
    assert cost_text(None) == "" and cost_text(Costs("live", 3.0)) == ""


def test_its_origin_is_shown():
    service = looping("mine.service")
    text = printed(whole(service, known=facts(service, linked=SINCE)))
    assert "configured since" in text and "need unknown" in text
