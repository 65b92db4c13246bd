"""Attempts of a pod's container as a history, where the runtime kept only the last of them; and lines of its log."""

import json
import shlex
from pathlib import Path

import pytest

from exhume.collect.containers.cri_services import log_tail
from exhume.collect.containers.owner import Workload, WorkloadKind, owner_of, workload_of
from exhume.collect.containers.runs import Attempt, Attempts, Run
from exhume.collect.node_root import NodeRoot

NANOS = 10**9
HOUR = 3600 * NANOS
DAY = 24 * HOUR


def crashed(number: int, at: int, lasted_s: float = 2.0) -> Attempt:
    return Attempt(number, at, Run(at, at + round(lasted_s * NANOS), 1, failed=True))


def test_a_young_pod_is_counted_from_its_first_attempt_on() -> None:
    now = 10 * DAY
    known = (crashed(11, now - 600 * NANOS), crashed(12, now - 300 * NANOS))
    reported = Attempts(known, pod_made=now - HOUR).history(now, now - DAY)
    assert (reported.starts, reported.failures, reported.restarts_per_hour, reported.hours) == (13, 13, 12.0, 1.0)
    assert reported.age_pattern == "always a few seconds old: the last 2 runs lasted 2.0 s to 2.0 s"


def test_an_old_pod_is_counted_from_the_oldest_that_is_left() -> None:
    now = 30 * DAY
    known = (crashed(4000, now - 600 * NANOS), crashed(4001, now - 300 * NANOS))
    reported = Attempts(known, pod_made=now - 20 * DAY).history(now, now - DAY)
    assert (reported.starts, reported.restarts_per_hour) == (2, 6.0)


def test_one_that_runs_well_since_its_crashes_long_ago_does_not_flap() -> None:
    now = 30 * DAY
    known = (crashed(4, now - 9 * DAY), Attempt(5, now - 9 * DAY + 10 * NANOS, Run(now - 9 * DAY + 10 * NANOS)))
    reported = Attempts(known, pod_made=None).history(now, now - DAY)
    assert reported.restarts_per_hour is not None and reported.restarts_per_hour < 0.01 and reported.failures == 1


def test_all_attempts_that_there_were_need_no_guess() -> None:
    now = 30 * DAY
    known = (crashed(0, now - 2 * HOUR), Attempt(1, now - HOUR, Run(now - HOUR)))
    reported = Attempts(known, pod_made=now - 2 * HOUR).history(now, now - DAY)
    assert (reported.starts, reported.failures, reported.restarts_per_hour, reported.age_pattern) == (2, 1, 0.5, "")


def test_ends_that_differ_are_not_taken_for_those_that_are_gone() -> None:
    now = 10 * DAY
    well = Attempt(12, now - 300 * NANOS, Run(now - 300 * NANOS, now - 200 * NANOS, 0))
    reported = Attempts((crashed(11, now - 600 * NANOS), well), pod_made=now - HOUR).history(now, now - DAY)
    assert (reported.starts, reported.failures) == (13, 1)


def test_lines_of_a_log_are_put_together_from_their_parts(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    stamp = "2026-01-01T00:00:00.000000000Z"
    log.write_text(
        f"{stamp} stdout F one\n{stamp} stderr P tw\n{stamp} stderr F o\n{stamp} stdout F \n"
        f"not a line of it\n{stamp} stdout F \x1b[31mred\n{stamp} stdout P unfinished"
    )
    assert log_tail(NodeRoot(), str(log), 3) == ("two", "\x1b[31mred", "unfinished")
    assert log_tail(NodeRoot(), str(tmp_path / "none.log"), 3) == ()


def test_lines_of_docker_are_read_too(tmp_path: Path) -> None:
    def line(text: str) -> str:
        return json.dumps({"log": text, "stream": "stderr", "time": "2026-01-01T00:00:00Z"}) + "\n"

    log = tmp_path / "0.log"
    log.write_text('{"a":' + "[" * 50_000 + "\n" + line("one\n") + line("a part, ") + line("and the rest\r\n"))
    with log.open("a") as file:
        file.write('{"no": "log"}\n{broken\n' + line("last"))
    assert log_tail(NodeRoot(), str(log), 5) == ("one", "a part, and the rest", "last")


def test_a_huge_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    line = f"2026-01-01T00:00:00Z stdout F {'x' * 1000}\n"
    log.write_text(line * 2000 + "2026-01-01T00:00:00Z stdout F last\n")
    *before, last = log_tail(NodeRoot(), str(log), 3)
    assert last == "last" and [len(each) for each in before] == [400, 400]


def test_owners_are_reported_by_what_they_leave_on_a_pod() -> None:
    reported = {
        "stateful set db/pg": (
            "db/pg-0",
            {"statefulset.kubernetes.io/pod-name": "pg-0", "controller-revision-hash": "x"},
        ),
        "daemon set kube-system/proxy": ("kube-system/proxy-x2c4v", {"controller-revision-hash": "6b"}),
        "deployment shop/web-a": ("shop/web-a-66b6-abcde", {"pod-template-hash": "66b6"}),
        "job shop/once": ("shop/once-abcde", {"batch.kubernetes.io/job-name": "once"}),
        "pod shop/alone": ("shop/alone", {}),
    }
    owners = [workload_of(pod, labels, {}) for pod, labels in reported.values()]
    assert [str(owner) for owner in owners] == list(reported)
    # What is recorded of them is all that is needed to name them again.
    pods = [pod for pod, _ in reported.values()]
    assert [Workload.parse(pod, owner.reference) for pod, owner in zip(pods, owners, strict=True)] == owners


@pytest.mark.parametrize(
    ("pod", "kind", "name"),
    [
        ("shop/web-596c6549b5-gn4q9", WorkloadKind.DEPLOYMENT, "web"),
        ("shop/web-a-7f8d9c4bd5-x2c4v", WorkloadKind.DEPLOYMENT, "web-a"),
        # Any of several kinds may have made these.
        ("shop/agent-qfttl", WorkloadKind.POD, "agent-qfttl"),
        ("shop/pg-0", WorkloadKind.POD, "pg-0"),
        # A CronJob's number, a hash with letters that none has.
        ("shop/nightly-28412640-x2c4v", WorkloadKind.POD, "nightly-28412640-x2c4v"),
        ("shop/web-abcdefghij-x2c4v", WorkloadKind.POD, "web-abcdefghij-x2c4v"),
    ],
)
def test_only_the_name_of_a_deployments_pod_shows_its_owner(pod: str, kind: WorkloadKind, name: str) -> None:
    for reference in (None, "", "deployment/", "cat/web"):
        assert Workload.parse(pod, reference) == Workload(kind, "shop", name)


def test_commands_stop_an_owner_of_each_kind() -> None:
    def stop(reference: str) -> list[list[str]]:
        owner = Workload.parse("prod/x", reference)
        return [shlex.split(each) for each in (*owner.stop_commands, *owner.undo_commands)]

    assert stop("deployment/crashy") == [["kubectl", "-n", "prod", "scale", "deployment", "crashy", "--replicas=0"]]
    assert stop("statefulset/pg") == [["kubectl", "-n", "prod", "scale", "statefulset", "pg", "--replicas=0"]]
    assert stop("job/import") == [["kubectl", "-n", "prod", "delete", "job", "import"]]
    assert stop("pod/x") == [["kubectl", "-n", "prod", "delete", "pod", "x"]]
    assert stop("replicaset/bare") == [["kubectl", "-n", "prod", "scale", "replicaset", "bare", "--replicas=0"]]
    assert stop("static-pod/x") == []
    # Its controller alone knows what stops it.
    assert stop("rollout.argoproj.io/web") == [["kubectl", "-n", "prod", "edit", "rollout.argoproj.io", "web"]]
    for reference in ("cronjob/nightly", "raycluster.ray.io/train"):
        kind, name = reference.split("/")
        to, back = stop(reference)
        assert to[:-1] == back[:-1] == ["kubectl", "-n", "prod", "patch", kind, name, "--type=merge", "-p"]
        assert [json.loads(each[-1]) for each in (to, back)] == [{"spec": {"suspend": on}} for on in (True, False)]
    to, back = stop("daemonset/agent")
    assert to[:6] == back[:6] == ["kubectl", "-n", "prod", "patch", "daemonset", "agent"]
    (key,) = json.loads(to[7])["spec"]["template"]["spec"]["nodeSelector"]
    assert json.loads(back[7])["spec"]["template"]["spec"]["nodeSelector"] == {key: None}


def test_the_job_of_a_suspended_cron_job_is_deleted() -> None:
    owner = Workload.parse("batch/nightly-29412640-x2c4v", "cronjob/nightly")
    assert owner.stop_commands[1:] == ("kubectl -n batch delete job nightly-29412640",)
    assert not owner.stops_reversibly
    by_hand = Workload.parse("batch/try-x2c4v", "cronjob/nightly")
    assert len(by_hand.stop_commands) == 1 and by_hand.stops_reversibly


def test_names_of_custom_kinds_are_checked() -> None:
    for kind in ("ray cluster.ray.io", ".io", "x.", "x.-a", "$(id).io"):
        assert Workload.parse("prod/x", f"{kind}/web").kind == WorkloadKind.POD
    assert str(Workload.parse("prod/x", "raycluster.ray.io/train")) == "raycluster prod/train"


def test_a_limit_is_raised_where_its_template_may_be_changed() -> None:
    owner = Workload.parse("prod/pg-0", "statefulset/pg")
    assert owner.limit_command("db", "cpu=2") == "kubectl -n prod set resources statefulset pg -c db --limits=cpu=2"
    for reference in ("job/import", "static-pod/x", "pod/x"):
        assert Workload.parse("prod/x", reference).limit_command("db", "cpu=2") == ""


def test_owners_of_single_containers() -> None:
    assert owner_of({}).label == ""
    assert owner_of({"com.docker.swarm.service.name": "web"}).label == "swarm service web"
    ecs = {"com.amazonaws.ecs.task-arn": "arn:x", "com.amazonaws.ecs.cluster": "prod"}
    assert owner_of(ecs).label == "ECS task arn:x of cluster prod"
