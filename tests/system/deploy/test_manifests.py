"""The manifests fit the API of every supported Kubernetes and grant no more than is needed; the chart has the same."""

import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from tests.system.deploy.manifests import CHART, KUSTOMIZE, ROOT, Object, containers, daemon_set, kustomized, rendered
from tests.system.deploy.own_image import copied_into_image
from tools.page import SOURCES

from exhume import __version__
from exhume.cli.args import Parser
from exhume.cli.commands import health, record
from exhume.model.settings import SETTINGS

VERSIONS = ("1.25", "1.29", "1.33", "1.37")


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_the_schema(version: str) -> None:
    for each in kustomized():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_schema_would_notice_a_wrong_field() -> None:
    wrong = daemon_set(kustomized())
    wrong["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_the_containers_have_the_least_privileges() -> None:
    found = containers(kustomized())
    assert set(found) == {"recorder", "page"}
    for each in found.values():
        context = each["securityContext"]
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
        assert "privileged" not in context and context["capabilities"]["drop"] == ["ALL"]
        assert each["resources"]["requests"] and each["resources"]["limits"]["memory"]
    assert found["recorder"]["securityContext"]["capabilities"]["add"] == ["PERFMON", "SYSLOG", "SYS_PTRACE"]
    assert "add" not in found["page"]["securityContext"]["capabilities"]
    assert found["page"]["securityContext"]["runAsNonRoot"] and found["page"]["securityContext"]["runAsUser"] > 0
    pod = daemon_set(kustomized())["spec"]["template"]["spec"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_only_recordings_can_be_written() -> None:
    found = containers(kustomized())
    writable = {
        (name, mount["name"])
        for name, each in found.items()
        for mount in each["volumeMounts"]
        if not mount.get("readOnly")
    }
    assert writable == {("recorder", "recordings"), ("recorder", "tmp"), ("page", "tmp")}


def test_the_recorder_may_read_owners_and_change_no_workload() -> None:
    role = by_name(kustomized())["ClusterRole", "exhume"]
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    owners = {("pods", "list"), ("replicasets", "get"), ("jobs", "get"), ("rayclusters", "get")}
    events = {("events", verb) for verb in ("create", "get", "patch")}
    assert granted == {("nodes", "get"), ("nodes/status", "patch"), *events, *owners}


def test_arguments_and_variables_are_known_to_the_program() -> None:
    recorder = containers(kustomized())["recorder"]
    variables = {
        each["name"] for each in chain.from_iterable(each["env"] for each in containers(kustomized()).values())
    }
    assert variables <= {setting.variable for setting in SETTINGS}
    command, *args = recorder["args"]
    parser = Parser(prog="exhume record")
    record.add_options(parser)
    assert command == "record" and vars(parser.parse_args(args))["group"] == "exhume"


def test_only_ticks_that_stopped_restart_the_recorder() -> None:
    recorder = containers(kustomized())["recorder"]
    parser = Parser(prog="exhume health")
    health.add_options(parser)
    asked = {}
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        program, command, *args = recorder[name]["exec"]["command"]
        assert (program, command) == ("exhume", "health") and recorder[name]["timeoutSeconds"] >= 10
        asked[name] = parser.parse_args(args)
    assert all(each.allow_losses for each in asked.values())
    assert asked["livenessProbe"].late_after == "60s"
    assert asked["readinessProbe"].late_after == health.DEFAULT_LATE_AFTER
    # The page of the command recommends what the manifests have.
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/commands/health.md").read_text(), re.DOTALL)
    assert yaml.safe_load(block) == {name: recorder[name] for name in ("readinessProbe", "livenessProbe")}


def test_the_page_can_read_what_the_recorder_writes() -> None:
    pod, found = daemon_set(kustomized())["spec"]["template"]["spec"], containers(kustomized())
    group = found["page"]["securityContext"]["runAsGroup"]
    # Root without CAP_CHOWN may give its files to a group only if it is a member.
    assert pod["securityContext"]["supplementalGroups"] == [group]
    assert f"exhume:x:{group}:" in (ROOT / "deploy/image/Dockerfile").read_text()


def test_the_chart_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


@pytest.mark.slow
def test_the_chart_renders_to_the_same_objects() -> None:
    plain = by_name(kustomized())
    # Helm makes the namespace itself (--create-namespace).
    del plain["Namespace", "exhume"]
    assert by_name(rendered()) == plain


@pytest.mark.slow
def test_values_of_the_chart() -> None:
    image = {"repository": "registry.test/exhume", "tag": "7", "pullPolicy": "Always"}
    page, priority = {"enabled": False}, {"create": False, "name": "system-node-critical"}
    values = {"image": image, "page": page, "priorityClass": priority, "nodeRoot": True, "networkPolicy": False}
    objects = rendered("monitoring", **values, rbac={"create": False}, nodeSelector={"pool": "batch"})
    assert set(by_name(objects)) == {("ServiceAccount", "exhume"), ("DaemonSet", "exhume")}
    assert {each["metadata"]["namespace"] for each in objects} == {"monitoring"}
    pod = daemon_set(objects)["spec"]["template"]["spec"]
    (recorder,) = pod["containers"]
    assert (recorder["image"], recorder["imagePullPolicy"]) == ("registry.test/exhume:7", "Always")
    assert pod["nodeSelector"] == {"pool": "batch"} and pod["priorityClassName"] == "system-node-critical"
    (root,) = [mount for mount in recorder["volumeMounts"] if mount["mountPath"] == "/host"]
    assert root["readOnly"]
    kubernetes_validate.validate(daemon_set(objects), VERSIONS[-1], strict=True)


@pytest.mark.needs("kubectl")
def test_kubectl_reads_the_kustomization_and_the_overlay() -> None:
    def kustomize(directory: str) -> list[Object]:
        command = [str(shutil.which("kubectl")), "kustomize", directory]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))

    assert by_name(kustomize(str(KUSTOMIZE))) == by_name(kustomized())
    overlay = kustomize(str(KUSTOMIZE / "audit"))
    mounts = {each["mountPath"]: each.get("readOnly") for each in containers(overlay)["recorder"]["volumeMounts"]}
    plain = {each["mountPath"]: each.get("readOnly") for each in containers(kustomized())["recorder"]["volumeMounts"]}
    assert mounts == {**plain, "/host": True}
    kubernetes_validate.validate(daemon_set(overlay), VERSIONS[0], strict=True)


def test_the_build_of_the_image_gets_all_that_the_page_is_built_from() -> None:
    copied = copied_into_image()
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [(ROOT / "web" / name).resolve().relative_to(ROOT) for name in SOURCES]
    assert [each for each in sources if not any(each.is_relative_to(top) for top in copied)] == []
    assert [each for each in copied if not any(Path(each).is_relative_to(top) for top in allowed)] == []
