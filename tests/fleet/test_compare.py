"""Comparisons: what differs, in the order in which it matters."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fleet.inventories import AGENT, BOOTSTRAP, KUBELET, condition_unit, node, unit
from tests.parts import examples

from exhume.fleet.attributes import attributes_of
from exhume.fleet.compare import Side, association, compare, difference_text, weights
from exhume.model.audit import Wants
from exhume.model.inventory import Cgroups, Image, Kernel, Missing, Nic, Packages, Reason


def sides(one, other) -> tuple[Side, Side]:
    return Side.of_node("A", attributes_of(one)), Side.of_node("B", attributes_of(other))


def differences(one, other) -> list[str]:
    return [each.key for each in compare(*sides(one, other)).differences]


def test_the_sentence_of_the_incident():
    found = compare(*sides(node(), node("ip-10-9-9-9", bootstrap=False)))
    assert found.sentence == f"{AGENT} crash-loops on A; on B it never started, because {BOOTSTRAP} failed"
    assert [each.key for each in found.differences] == [f"unit.{AGENT}", f"unit.{BOOTSTRAP}", "bootstrap"]
    first = found.differences[0]
    assert (first.a.value, first.b.value) == ("failed/crash-loop", "inactive/never-started")
    assert first.b.because == BOOTSTRAP and first.q is None


def test_the_other_way_round():
    found = compare(*sides(node(bootstrap=False), node()))
    assert found.sentence == f"{AGENT} never started on A, because {BOOTSTRAP} failed; on B it crash-loops"


def test_a_chain_names_the_first_cause_and_what_was_between():
    chain = unit(AGENT, "inactive", wants=Wants(failed=("between.service", BOOTSTRAP)))
    other = replace(node(bootstrap=False), units=(chain,))
    assert f"because {BOOTSTRAP} failed (through between.service)" in compare(*sides(node(), other)).sentence


def test_nodes_that_are_alike():
    found = compare(*sides(node(), node("ip-10-9-9-9")))
    assert not found.differences and not found.unread and found.compared > 20
    assert found.sentence == "A and B do not differ"


def test_the_order_of_what_matters():
    other = node(
        bootstrap=False,
        kernel=Kernel("6.1"),
        cgroups=Cgroups("v2"),
        nics=(Nic("ens5", "ena", "2.12", "1.0", 9001, queues={"0": "0", "1": "1"}),),
        sysctls={"vm.swappiness": "10", "net.core.somaxconn": "4096"},
        packages=Packages("dpkg", {"bash": "5.1"}),
        image=Image("dl-base", "8"),
    )
    found = differences(node(), other)
    order = [
        "unit." + AGENT,
        "unit." + BOOTSTRAP,
        "bootstrap",
        "cgroup.version",
        "nic.driver_version",
        "kernel",
        "image",
    ]
    assert found[: len(order)] == order
    assert found.index("sysctl.vm.swappiness") < found.index("package.bash")


def test_consequences_come_after_their_cause():
    plain = node(kernel=Kernel("6.1"), modules={"ena": "2.12", "xfs": ""})
    found = {each.key: each for each in compare(*sides(node(), plain)).differences}
    assert found["module.ena"].follows == "kernel" and found["kernel"].follows is None
    alone = {each.key: each for each in compare(*sides(node(), node(modules={"ena": "2.12"}))).differences}
    assert alone["module.ena"].weight > found["module.ena"].weight


def test_a_unit_that_is_not_there_and_one_that_a_condition_holds_back():
    without = node(units=tuple(each for each in node().units if each.id != KUBELET))
    assert f"{KUBELET} is active on A; on B it is not there" in compare(*sides(node(), without)).sentence
    held = node(units=(*without.units, condition_unit(KUBELET)))
    assert (
        "it was not started, because ConditionPathExists=/etc/x did not hold" in compare(*sides(node(), held)).sentence
    )


def test_a_section_that_one_side_lacks_is_not_compared():
    closed = replace(node(), packages=None, missing=(Missing("packages", Reason.PERMISSION),))
    found = compare(*sides(node(), closed))
    assert not found.differences
    assert [(each.section, each.side, each.reason) for each in found.unread if each.section == "packages"] == [
        ("packages", "B", "permission")
    ]
    assert "packages" in found.sentence


def test_an_empty_section_is_compared():
    assert "package.bash" in differences(node(), node(packages=Packages("dpkg", {})))


def group(label: str, *nodes) -> Side:
    counts: dict[str, dict[str, int]] = {}
    for each in nodes:
        for key, value in attributes_of(each).items():
            counts.setdefault(key, {})[value] = counts.setdefault(key, {}).get(value, 0) + 1
    return Side(label, counts, len(nodes))


def test_groups_differ_in_what_most_of_their_nodes_have():
    a = group("zone=a", *(node(f"ip-10-0-0-{n}") for n in range(20)))
    b = group("zone=b", *(node(f"ip-10-0-1-{n}", bootstrap=n == 0) for n in range(20)))
    found = compare(a, b)
    assert [each.key for each in found.differences] == [f"unit.{AGENT}", f"unit.{BOOTSTRAP}", "bootstrap"]
    first = found.differences[0]
    assert first.b.share == pytest.approx(0.95) and first.effect == pytest.approx(0.95) and first.q < 1e-6
    assert found.sentence == (
        f"{AGENT} crash-loops on zone=a; on zone=b it never started (95% of nodes), because {BOOTSTRAP} failed"
    )


def test_groups_that_differ_by_accident_do_not_differ():
    def versions(odd: int):
        return [node(packages=Packages("dpkg", {"bash": "5.1" if n < odd else "5.0"})) for n in range(20)]

    assert not compare(group("a", *versions(3)), group("b", *versions(6))).differences
    assert compare(group("a", *versions(1)), group("b", *versions(18))).differences


def test_values_that_every_node_has_its_own_of_are_no_difference():
    def named(first: int):
        return [node(labels={"serial": f"s{n}"}) for n in range(first, first + 8)]

    assert not compare(group("a", *named(0)), group("b", *named(100))).differences


def test_nodes_that_could_not_be_read_count_neither_way():
    closed = replace(node(), packages=None, missing=(Missing("packages", Reason.PERMISSION),))
    a, b = group("a", *[node()] * 10), group("b", *[node()] * 5, *[closed] * 5)
    assert not compare(a, b).differences and not compare(a, b).unread
    assert [each.section for each in compare(a, group("b", closed, closed)).unread] == ["packages"]


def test_a_single_node_against_a_group():
    found = compare(group("a", *[node()] * 6), group("b", node(bootstrap=False)))
    assert found.differences[0].key == f"unit.{AGENT}"


def test_every_difference_has_a_sentence_and_a_rule():
    other = node(bootstrap=False, kernel=Kernel("6.1"), cgroups=Cgroups("v2"), packages=Packages("dpkg", {}))
    for each in compare(*sides(node(), other)).differences:
        text = difference_text(each, "A", "B")
        assert " on A" in text and "B" in text and "None" not in text
    assert weights().rule_of("anything.else").id == "other"
    assert len({rule.id for rule in weights().rules}) == len(weights().rules)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        # Fisher's lady tasting tea, both sides: 34/70.
        ((3, 4, 1, 4), 34 / 70),
        # Two of the 252 ways to choose five of ten are as extreme.
        ((0, 5, 5, 5), 2 / 252),
        # Of C(16, 9) tables: 45 * 6 + 10 * 1, and on the other side C(10, 3).
        ((8, 10, 1, 6), (45 * 6 + 10 + 120) / 11440),
        # Large: chi-squared is 200 * (30 * 50 - 70 * 50)^2 / (100 * 100 * 80 * 120) = 25/3.
        ((30, 100, 50, 100), math.erfc(math.sqrt(25 / 6))),
    ],
)
def test_the_chance_of_an_accident(table, expected):
    assert association(*table) == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
@examples(100)
def test_the_chance_is_one_and_does_not_depend_on_the_order(hits_a, rest_a, hits_b, rest_b):
    if hits_a + rest_a and hits_b + rest_b:
        one = association(hits_a, hits_a + rest_a, hits_b, hits_b + rest_b)
        assert 0.0 <= one <= 1.0
        assert one == pytest.approx(association(hits_b, hits_b + rest_b, hits_a, hits_a + rest_a))
        assert one == pytest.approx(association(rest_a, hits_a + rest_a, rest_b, hits_b + rest_b))
