"""Whether anything needs a service: by which rule, and never by what merely doesn't run."""

from dataclasses import replace

import pytest
from tests.diagnose.audit.audit_scenes import (
    NOW,
    SINCE,
    answered,
    but,
    container,
    facts,
    history,
    judged,
    looping,
    some_name,
    unit,
    used,
)

from exhume.diagnose.audit.agents import questions, recognise
from exhume.model.audit import Answer, Exit, Needed, Wants


def answer(service, *others, **more) -> tuple[str, str]:
    need = judged(service, *others, **more).need
    assert need.why
    return str(need.needed), need.rule


@pytest.mark.parametrize("seed", range(6))
def test_what_came_with_the_image_and_never_worked_is_not_needed(seed):
    assert answer(looping(some_name(seed))) == ("no", "never-worked")


@pytest.mark.parametrize("seed", range(6))
def test_a_configured_service_that_never_worked_may_be_needed(seed):
    assert answer(looping(some_name(seed)), linked=SINCE) == ("unknown", "never-worked-but-configured")


def test_what_worked_once_today_is_not_called_useless():
    assert answer(looping(history=history(312, 200)))[0] == "unknown"


def test_a_boot_that_is_not_over_proves_nothing():
    assert answer(looping(history=history(12, 12, hours=0.02))) == ("unknown", "never-worked-yet")
    # The image's own application, while the database that it waits for is away for half an hour.
    assert answer(looping(history=history(360, 360, hours=0.5))) == ("unknown", "never-worked-yet")


def test_what_only_began_to_fail_is_not_called_useless():
    """It ran for days, and fails since a minute, while the database that it needs is away."""
    lately = replace(history(20, 21, hours=24), failing_s=60.0)
    assert answer(looping(history=lately)) == ("unknown", "never-worked-yet")
    for longest in (86_000.0, 601.0):
        known = replace(history(20, 21, hours=24), failing_s=50_000.0, longest_s=longest)
        assert answer(looping(history=known))[0] == "unknown"
    never = replace(history(20, 20, hours=24), failing_s=50_000.0, longest_s=4.0)
    assert answer(looping(history=never)) == ("no", "never-worked")


def test_a_few_failures_prove_nothing_however_long_ago():
    assert answer(looping(history=history(4, 4, hours=24)))[0] == "unknown"


def test_what_an_active_unit_requires_is_needed():
    broken = looping("db.service", wants=Wants(required_by=("shop.service",)))
    assert answer(broken, unit("shop.service")) == ("yes", "required-by-active")


def test_a_unit_that_requires_it_and_does_not_run_itself_does_not_count():
    broken = looping("db.service", wants=Wants(required_by=("shop.service",)))
    assert answer(broken, unit("shop.service", "inactive", "dead"))[0] == "no"


def test_a_target_that_requires_it_is_a_wish():
    broken = looping("db.service", wants=Wants(required_by=("multi-user.target",)))
    assert answer(broken, unit("multi-user.target"))[0] == "no"


def test_a_service_with_connections_is_needed():
    service = looping("db.service")
    known = facts(service, uses=used(service, listens=("port 5432",), connections=("3 connections to port 5432",)))
    assert answer(service, known=known) == ("yes", "in-use")


def test_a_port_without_connections_decides_nothing():
    service = unit("db.service")
    need = judged(service, known=facts(service, uses=used(service, listens=("port 5432",)))).need
    assert need.needed is Needed.UNKNOWN and "port 5432" in need.why


def test_what_holds_containers_is_needed():
    service = looping("someones-runtime.service")
    known = facts(service, uses=used(service, holds=("the keepers of 12 containers",)))
    assert answer(service, known=known) == ("yes", "holds-others")


@pytest.mark.parametrize("name", ["ssh.service", "dbus.service", "systemd-networkd.service", "containerd.service"])
def test_what_keeps_the_node_reachable_is_needed_even_while_it_loops(name):
    assert answer(looping(name)) == ("yes", "protected")


def test_a_kubelet_without_a_cluster_is_reported_and_kept():
    service = looping("kubelet.service")
    found = judged(service, answers=answered(service, False))
    assert (found.need.needed, found.need.rule) == (Needed.UNKNOWN, "protected")
    assert "cluster" in found.need.why


def test_an_agent_that_lacks_what_it_cannot_do_without_is_not_needed():
    service = unit("datadog-agent.service")
    found = judged(service, answers=answered(service, False))
    assert (found.need.needed, found.need.rule) == (Needed.NO, "agent-lacks")
    assert found.agent is not None and found.agent.lacks[0].what in found.need.why
    assert found.agent.lacks[0].seen in found.need.why


def test_an_agent_with_its_requirement_was_configured():
    service = unit("datadog-agent.service")
    assert answer(service, answers=answered(service, True)) == ("yes", "agent-set-up")


def test_what_can_not_be_seen_is_not_lacking():
    service = unit("datadog-agent.service")
    found = judged(service, answers=answered(service, None))
    assert found.need.needed is Needed.UNKNOWN
    assert found.agent is not None and not found.agent.lacks


def ecs(answers_cluster: bool) -> tuple:
    """The incident's agent: Docker is there, who may register can't be seen, a cluster is set or not."""
    service = looping("ecs.service", last_exit=Exit(NOW, 5))
    entry = recognise(service)
    assert entry is not None
    held = {"Docker": True, "a cluster": answers_cluster, "credentials": None}
    answers = {
        (service.key, check): Answer(next(value for word, value in held.items() if word in need.what), "seen so")
        for need in entry.needs
        for check in need.checks
    }
    return service, answers


def test_the_incidents_agent_is_not_needed():
    service, answers = ecs(answers_cluster=False)
    found = judged(service, answers=answers)
    assert (found.need.needed, found.need.rule) == (Needed.NO, "never-worked")
    assert "cluster" in found.need.why


def test_an_ecs_agent_that_works_without_a_cluster_of_its_own_asks_for_the_default_one():
    _, answers = ecs(answers_cluster=False)
    assert answer(unit("ecs.service"), answers=answers)[0] == "unknown"


def test_an_ecs_agent_with_a_cluster_is_not_useless():
    service, answers = ecs(answers_cluster=True)
    assert answer(service, linked=SINCE, answers=answers)[0] == "unknown"


def test_the_same_agent_is_known_by_its_image():
    found = judged(container("ecs-agent", image="public.ecr.aws/ecs/amazon-ecs-agent:v1.98.0"))
    assert found.agent is not None and found.agent.id == "ecs-agent"


def test_a_similar_name_is_no_agent():
    for name in ("ecs-backup.service", "my-datadog.service", "kubelet-exporter.service"):
        assert judged(unit(name)).agent is None
    assert judged(container(image="acme/not-amazon-ecs-agent-at-all:1")).agent is None


def test_an_instance_is_known_by_its_template():
    assert judged(unit("getty@tty1.service")).agent is not None


def test_a_unit_that_never_started_for_a_failed_dependency_may_yet_be_of_use():
    failed = unit("bootstrap.service", "failed", "failed", last_exit=Exit(NOW, 7))
    late = unit(state="inactive", detail="dead", wants=Wants(failed=(failed.id,)))
    assert answer(late, failed) == ("unknown", "never-worked-yet")
    assert answer(late, failed, linked=SINCE)[0] == "unknown"


def test_a_configured_service_that_works_is_needed():
    assert answer(unit(), linked=SINCE) == ("yes", "configured-and-works")
    # One that was started again a moment ago may be down in the next.
    assert answer(unit(age_s=2.0), linked=SINCE) == ("unknown", "no-rule")


def test_other_services_do_not_change_the_answer():
    """Whatever else is on the node, or is not, the answer about a healthy service that nobody knows stays the same."""
    alone = answer(unit(some_name(1)))
    among = answer(unit(some_name(1)), *(container(f"c{place}") for place in range(5)))
    assert alone == among == ("unknown", "no-rule")


def test_asking_covers_every_check_of_an_agent():
    service = unit("ecs.service")
    entry = recognise(service)
    assert entry is not None
    assert len(questions(entry)) == len({check for need in entry.needs for check in need.checks})
    assert judged(but(service, id="x.service", name="x.service")).agent is None


def signs(service) -> dict:
    """Nothing that an agent needs is there, but what can't be seen."""
    return answered(service, False)


def test_an_agents_container_that_never_worked_is_young_by_no_ones_order():
    image = "amazon/amazon-ecs-agent:latest"
    service = container("ecs-agent", "restarting", image=image, restarts=311, history=history(312, 312))
    _, answers = ecs(answers_cluster=False)
    mine = {(service.key, check): value for (_, check), value in answers.items()}
    assert answer(service, answers=mine) == ("no", "never-worked")


def test_one_sign_does_not_make_a_configured_agent_useless():
    service = looping("puppet.service")
    assert answer(service, linked=SINCE, answers=signs(service)) == ("unknown", "never-worked-but-configured")
    assert answer(service, answers=signs(service)) == ("no", "never-worked")


def test_an_agent_whose_machine_just_booted_may_yet_get_what_it_lacks():
    service = looping("puppet.service", history=history(12, 12, hours=0.02))
    assert answer(service, answers=signs(service)) == ("unknown", "never-worked-yet")
