"""Plans for containers: what their manager can be reported, and what is left to a person, whatever they are called."""

import shlex
from dataclasses import dataclass, replace

import pytest

from exhume.control.containers import RestartPolicy as Policy
from exhume.control.managers import ActionFailed, Controls
from exhume.model.audit import (
    Agent,
    Audit,
    Costs,
    Judged,
    Lack,
    Manager,
    Need,
    Needed,
    Origin,
    Provenance,
    Service,
    Trait,
)
from exhume.model.errors import UsageError
from exhume.model.remedy import Effect, Measure, NotIncluded, Plan, Risk
from exhume.present.fix_view import plan_json, plan_lines
from exhume.remedy.ledger import SavedPlan
from exhume.remedy.services.planner import choose, manager_of, unneeded
from exhume.remedy.services.steps import Selection, container_steps

ID = "ab12" * 16
HOSTILE = "x'; touch /tmp/owned; '"


@dataclass(frozen=True)
class Engine:
    policy: Policy
    up: bool = True
    goes: bool = False
    paused: bool = False

    def goes_when_stopped(self, container: str) -> bool:
        return self.goes

    def restart_policy(self, container: str) -> Policy:
        return self.policy

    def runs(self, container: str) -> bool:
        return self.up

    def is_paused(self, container: str) -> bool:
        return self.paused


def controls(policy: Policy, *, up: bool = True) -> Controls:
    return Controls(engines={Manager.DOCKER: Engine(policy, up)})


KNOWN = Agent("some-agent", "Some agent", "does things", ("a config",), (Lack("a config", "no /etc/some is there"),))


def judged(service: Service, needed: Needed = Needed.NO, *traits: Trait, agent: Agent | None = KNOWN) -> Judged:
    need = Need(needed, "rule", "nothing connects to it")
    return Judged(service, traits, ("it crash-loops",), Provenance(Origin.UNKNOWN, ""), need, agent)


def test_what_docker_starts_again_is_stopped_and_its_policy_changed_by_id():
    chosen = Selection(Service(Manager.DOCKER, ID, HOSTILE))
    steps, why = container_steps(chosen, controls(Policy("on-failure", 4)))
    assert why == ""
    assert [step.commands for step in steps] == [(f"docker stop -t 30 {ID}",), (f"docker update --restart=no {ID}",)]
    assert f"docker update --restart=on-failure:4 {ID}" in steps[1].undo_commands
    assert all(step.targets == (f"docker:{ID}",) for step in steps)


def test_the_plan_says_that_compose_brings_it_back():
    made = Service(Manager.DOCKER, ID, "web", owner="compose project shop, service web", fragment="/srv/shop.yaml")
    steps, _ = container_steps(Selection(made), controls(Policy("always")))
    assert all("next docker compose up starts it again" in step.harm for step in steps)
    assert "/srv/shop.yaml" in steps[0].harm


def test_how_often_it_may_be_tried_is_part_of_the_policy():
    steps, _ = container_steps(Selection(Service(Manager.DOCKER, ID, "a")), controls(Policy("on-failure", 5)))
    assert "restart policy on-failure:5 -> no" in steps[1].title


def test_only_what_is_to_be_done_is_planned():
    chosen = Selection(Service(Manager.DOCKER, ID, "a"))
    assert [step.action for step in container_steps(chosen, controls(Policy("no")))[0]] == ["stop-container"]
    assert [step.action for step in container_steps(chosen, controls(Policy("always"), up=False))[0]] == [
        "restart-policy"
    ]
    assert container_steps(chosen, controls(Policy("no"), up=False)) == (
        [],
        "docker:a does not run, and nothing starts it again",
    )


def test_an_invalid_id_or_silent_manager_is_reported():
    with pytest.raises(UsageError, match="not a container id"):
        container_steps(Selection(Service(Manager.DOCKER, "../" + ID, "a")), controls(Policy("no")))
    with pytest.raises(ActionFailed, match="no socket of podman"):
        container_steps(Selection(Service(Manager.PODMAN, ID, "a")), controls(Policy("no")))


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"pod": f"kube-system/{HOSTILE}"}, ["kubectl", "-n", "kube-system", "describe", "pod", HOSTILE]),
        ({"pod": "a/b", "fragment": f"/etc/kubernetes/manifests/{HOSTILE}.yaml"}, ["mv", "--"]),
        ({}, ["crictl", "inspect", ID]),
    ],
)
def test_what_kubernetes_orders_is_left_to_a_person_with_commands_that_can_be_typed(known, words):
    (step,), why = container_steps(Selection(Service(Manager.CRI, ID, HOSTILE, **known)), Controls())
    assert (why, step.automatic) == ("", False)
    assert shlex.split(step.commands[0])[: len(words)] == words
    assert all(
        HOSTILE in shlex.split(command) or HOSTILE not in command or "yaml" in command for command in step.commands
    )


def test_the_plan_for_a_pod_stops_its_owner():
    known = {"pod": "prod/crashy-596c6549b5-gn4q9", "workload": "deployment/crashy", "restarts": 4}
    (step,), _ = container_steps(Selection(Service(Manager.CRI, ID, f"{known['pod']}/worker", **known)), Controls())
    assert step.commands[1:] == (
        "kubectl -n prod logs --previous crashy-596c6549b5-gn4q9 -c worker",
        "kubectl -n prod scale deployment crashy --replicas=0",
    )
    assert step.reversible and ".." not in step.why
    known = {"pod": "prod/import-abcde", "workload": "job/import"}
    (step,), _ = container_steps(Selection(Service(Manager.CRI, ID, f"{known['pod']}/run", **known)), Controls())
    # The only run of a job's pod has none before it.
    assert step.commands[1:] == (
        "kubectl -n prod logs import-abcde -c run",
        "kubectl -n prod delete job import",
    )
    assert not step.reversible


def test_a_pod_of_docker_is_left_to_a_person_too():
    (step,), _ = container_steps(Selection(Service(Manager.DOCKER, ID, "a", pod="ns/pod")), controls(Policy("always")))
    assert not step.automatic


def test_a_target_means_one_container_of_its_manager():
    rows = [judged(Service(Manager.DOCKER, ID, "a")), judged(Service(Manager.PODMAN, "cd" * 32, "a"))]
    assert choose("docker:a", rows, Controls()).service.id == ID
    assert choose(f"docker:{ID[:12]}", rows, Controls()).service.id == ID
    assert choose("podman:a", rows, Controls()).service.manager is Manager.PODMAN
    for target in ("docker:b", f"docker:{ID[:6]}", "docker:", "cri:a"):
        with pytest.raises(UsageError, match="there is no container"):
            choose(target, rows, Controls())
    twice = [*rows, judged(Service(Manager.DOCKER, "ef" * 32, "a"))]
    with pytest.raises(UsageError, match="several"):
        choose("docker:a", twice, Controls())
    assert manager_of("systemd:x") is None and manager_of("a.service") is None


def test_an_earlier_pod_of_a_job_means_the_job():
    """Between an audit and a plan it may have made another pod."""
    job = {"pod": "prod/import-b", "workload": "job/import", "earlier": ("prod/import-a/run",)}
    rows = [judged(Service(Manager.CRI, ID, "prod/import-b/run", **job))]
    for target in ("cri:prod/import-a/run", "cri:prod/import-b/run"):
        assert choose(target, rows, Controls()).service.id == ID


def test_without_a_target_it_is_what_is_in_trouble_and_not_needed():
    rows = (
        judged(Service(Manager.DOCKER, ID, "loops"), Needed.NO, Trait.CRASH_LOOP),
        judged(Service(Manager.DOCKER, ID, "loops-needed"), Needed.YES, Trait.CRASH_LOOP),
        judged(Service(Manager.DOCKER, ID, "loops-unknown"), Needed.UNKNOWN, Trait.CRASH_LOOP),
        judged(Service(Manager.DOCKER, ID, "well"), Needed.NO, Trait.DEFAULT_ON),
    )
    taken, unasked = unneeded(Audit("n", 0, rows))
    assert [each.service.name for each in taken] == ["loops"] and not unasked


def test_what_only_never_worked_has_to_be_named():
    service = Service(Manager.SYSTEMD, "zarf.service", "zarf.service")
    nothing_lacks = replace(KNOWN, lacks=())
    for agent in (None, nothing_lacks):
        row = judged(service, Needed.NO, Trait.CRASH_LOOP, agent=agent)
        taken, unasked = unneeded(Audit("n", 0, (row,)))
        assert not taken and unasked == [NotIncluded("zarf.service", "nothing connects to it")]
        # For a name that was given it is reported that it is no sure thing.
        assert Selection(service, row).risk is Risk.MEDIUM
    plan = Plan("everything", None, "Nothing.", not_included=tuple(unasked))
    text = "\n".join(plan_lines(plan))
    assert "name it to include it" in text and "$ exhume fix plan zarf.service" in text
    saved = SavedPlan("20260101-000000-abcd", plan, "node", "m", "/", "b", 1)
    (listed,) = plan_json(saved)["not_included"]
    assert listed["command"] == "exhume fix plan zarf.service"


def test_risk_and_reason_go_by_the_audit():
    service = Service(Manager.DOCKER, ID, "a")
    risks = {needed: Selection(service, judged(service, needed)).risk for needed in Needed}
    assert risks == {Needed.YES: Risk.HIGH, Needed.NO: Risk.LOW, Needed.UNKNOWN: Risk.MEDIUM}
    assert Selection(service, judged(service)).why == "it crash-loops; nothing connects to it"
    assert "requested" in Selection(service).why


def test_effects_are_only_what_it_was_seen_to_cause():
    plain = Service(Manager.DOCKER, ID, "a")
    assert {effect.expected for effect in Selection(plain).effects} == {"stay"}
    loops = judged(plain, Needed.NO, Trait.CRASH_LOOP)
    assert Selection(plain, loops).effects[0] == Effect(Measure.RESTARTS, "stop", "docker:a")
    leaks = Service(Manager.DOCKER, ID, "a", costs=Costs("live", 1.0, cgroups_leaked=7))
    assert Effect(Measure.ZOMBIE_GROWTH, "fall") in Selection(leaks).effects
    assert Effect(Measure.KERNEL_CORE, "fall") in Selection(plain, None, "zombie-memcgs").effects
    for effects in (Selection(plain).effects, Selection(leaks, loops, "zombie-memcgs").effects):
        assert len({(effect.measure, effect.subject) for effect in effects}) == len(effects), "each measure once"


def test_a_container_that_a_unit_starts_is_that_units_affair():
    chosen = Selection(Service(Manager.DOCKER, ID, "a", owner="unit a\\x2db.service"))
    steps, why = container_steps(chosen, controls(Policy("no")))
    assert steps == [] and why.endswith("exhume fix plan 'a\\x2db.service'")


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (f"swarm service {HOSTILE}", ["docker", "service", "scale", f"{HOSTILE}=0"]),
        ("ECS task arn:aws:ecs:x of cluster y z", ["aws", "ecs", "describe-tasks", "--cluster", "y z"]),
    ],
)
def test_orchestrated_containers_are_left_to_a_person(owner, words):
    steps, why = container_steps(Selection(Service(Manager.DOCKER, ID, "a", owner=owner)), controls(Policy("no")))
    assert why == "" and [step.automatic for step in steps] == [False]
    assert shlex.split(steps[0].commands[-1])[: len(words)] == words


def test_what_would_be_lost_when_it_stops_is_not_stopped():
    own = Controls(engines={Manager.DOCKER: Engine(Policy("no"), goes=True)})
    steps, why = container_steps(Selection(Service(Manager.DOCKER, ID, "a")), own)
    assert steps == [] and "--rm" in why and f"docker stop {ID}" in why
