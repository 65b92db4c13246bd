"""The manifests fit the API of every supported Kubernetes and grant no more than is needed; the chart has the same."""

import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.parts import need
from tests.system.deploy.manifests import (
    CHART,
    KUSTOMIZE,
    ROOT,
    Object,
    containers,
    daemon_set,
    kustomized,
    platform_components,
    rendered,
)
from tests.system.deploy.own_image import copied_into_image
from tools.page import SOURCES

from exhume import __version__
from exhume.cli.args import Parser, notification_settings, push_settings, recorder_settings
from exhume.cli.commands import health, record
from exhume.cli.metrics import MetricsOptions, metrics_options, takes_events
from exhume.model.job_event import DEFAULT_SOCKET
from exhume.model.settings import SETTINGS

VERSIONS = ("1.25", "1.29", "1.33", "1.37")
# The components of deploy/kubernetes/components, each with the values of the chart that turn the same on.
HUB = "https://hub.example:8460"
TAINT = {"taint": "PreferNoSchedule", "taintShare": "10%"}
COMPONENTS: dict[str, dict[str, Object]] = {
    "conditions": {"kubernetes": {"enabled": True, "taint": "none"}},
    "taint": {"kubernetes": {"enabled": True, **TAINT}},
    "metrics": {"metrics": {"enabled": True, "port": 9739, "tokenSecret": "exhume-metrics"}},
    "push": {"push": {"target": HUB, "tokenSecret": "exhume-push"}},
    "events": {"events": {"enabled": True}},
}
KUBERNETES_PAGE = ROOT / "docs/kubernetes.md"


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def unordered(value: Any) -> Any:
    """Without the order of what has names: variables, mounts, volumes, containers."""
    if isinstance(value, dict):
        return {key: unordered(each) for key, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, dict) and "name" in each for each in value):
        return {each["name"]: unordered(each) for each in value}
    return value


def kustomize(directory: Path) -> list[Object]:
    """The objects as kubectl reads them."""
    command = [str(shutil.which("kubectl")), "kustomize", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def granted(objects: list[Object]) -> set[tuple[str, str]]:
    rules = by_name(objects)["ClusterRole", "exhume"]["rules"]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("components", [(), tuple(COMPONENTS)], ids=["base", "all"])
def test_every_object_fits_the_schema(version: str, components: tuple[str, ...]) -> None:
    for each in kustomized(*components):
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
    owners = {("pods", "list"), ("replicasets", "get"), ("jobs", "get"), ("rayclusters", "get")}
    events = {("events", verb) for verb in ("create", "get", "patch")}
    usual = {("nodes", "get"), ("nodes/status", "patch"), *events, *owners}
    assert granted(kustomized()) == granted(kustomized("conditions", "metrics", "push", "events")) == usual
    assert granted(kustomized("conditions", "taint")) - usual == {("nodes", "list"), ("nodes", "patch")}


def test_the_rights_are_those_of_the_page_about_conditions() -> None:
    text = (ROOT / "docs/kubernetes-conditions.md").read_text()
    (block,) = [each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "ClusterRole" in each]
    assert yaml.safe_load(block)["rules"] == by_name(kustomized())["ClusterRole", "exhume"]["rules"]
    with_taint = yaml.safe_load(re.sub(r"^# - ", "- ", block, flags=re.MULTILINE))["rules"]
    assert with_taint == by_name(kustomized("conditions", "taint"))["ClusterRole", "exhume"]["rules"]


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


def test_components_set_what_the_recorder_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables as kubelet would fill them in, read by the program itself."""
    recorder = containers(kustomized(*COMPONENTS))["recorder"]
    fields = {"status.hostIP": "fd00::5", "spec.nodeName": "node-1"}
    known: dict[str, str] = {}
    for each in recorder["env"]:
        source = each.get("valueFrom", {})
        text = fields.get(source.get("fieldRef", {}).get("fieldPath"), "0123456789abcdef") if source else each["value"]
        # kubelet replaces only what was defined before; the rest stays as it is.
        known[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: known.get(match[1], match[0]), text)
    assert set(known) - {"NODE_IP"} <= {setting.variable for setting in SETTINGS}
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    parser = Parser(prog="exhume record")
    record.add_options(parser)
    options = parser.parse_args([each for each in recorder["args"][1:] if each not in ("--group", "exhume")])
    assert metrics_options(options) == MetricsOptions("fd00::5", 9739, "0123456789abcdef") and takes_events(options)
    notifications, pushes = notification_settings(options), push_settings(options)
    assert notifications.kubernetes and (notifications.taint, notifications.taint_share) == ("PreferNoSchedule", 0.1)
    assert (pushes.target, pushes.token_file) == (HUB, Path("/etc/exhume/push/node-1"))
    settings = recorder_settings(options)
    assert (settings.node_name, settings.events_socket) == ("node-1", DEFAULT_SOCKET)
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in recorder["volumeMounts"]}
    assert mounts["/etc/exhume/push"] and not mounts[str(DEFAULT_SOCKET.parent)]
    assert [each["containerPort"] for each in recorder["ports"]] == [9739]


def test_components_add_one_directory_that_can_be_written() -> None:
    def writable(*components: str) -> set[str]:
        mounts = containers(kustomized(*components))["recorder"]["volumeMounts"]
        return {each["mountPath"] for each in mounts if not each.get("readOnly")}

    assert writable(*COMPONENTS) - writable() == {"/run/exhume"}
    assert writable("conditions", "taint", "metrics", "push") == writable()


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
@pytest.mark.parametrize(
    "components", [*((name,) for name in COMPONENTS if name != "taint"), ("conditions", "taint"), tuple(COMPONENTS)]
)
def test_the_chart_turns_the_same_on(components: tuple[str, ...]) -> None:
    plain = by_name(kustomized(*components))
    del plain["Namespace", "exhume"]
    values = {name: value for each in components for name, value in COMPONENTS[each].items()}
    chart = by_name(rendered(**values))
    assert unordered(chart) == unordered(plain)
    # What is expanded comes after what it is made of.
    names = [each["name"] for each in containers(list(chart.values()))["recorder"]["env"]]
    for first, then in (("NODE_IP", "EXHUME_METRICS"), ("EXHUME_NODE_NAME", "EXHUME_PUSH_TOKEN_FILE")):
        assert then not in names or names.index(first) < names.index(then)


@pytest.mark.slow
def test_the_taint_of_the_chart_takes_conditions() -> None:
    objects = rendered(kubernetes={"enabled": False, **TAINT})
    assert unordered(by_name(objects)) == unordered(by_name(rendered()))


@pytest.mark.slow
def test_a_target_without_a_token_needs_no_secret() -> None:
    (recorder,) = [
        each
        for name, each in containers(rendered(push={"target": "s3://lake/exhume", "tokenSecret": ""})).items()
        if name == "recorder"
    ]
    assert {each["name"] for each in recorder["env"] if "PUSH" in each["name"]} == {"EXHUME_PUSH"}
    assert "push" not in {each["name"] for each in recorder["volumeMounts"]}


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
def test_kubectl_reads_the_kustomization_and_the_overlays(tmp_path: Path) -> None:
    assert by_name(kustomize(KUSTOMIZE)) == by_name(kustomized())
    overlay = kustomize(KUSTOMIZE / "audit")
    mounts = {each["mountPath"]: each.get("readOnly") for each in containers(overlay)["recorder"]["volumeMounts"]}
    plain = {each["mountPath"]: each.get("readOnly") for each in containers(kustomized())["recorder"]["volumeMounts"]}
    assert mounts == {**plain, "/host": True}
    kubernetes_validate.validate(daemon_set(overlay), VERSIONS[0], strict=True)
    assert by_name(kustomize(KUSTOMIZE / "platform")) == by_name(kustomized(*platform_components()))
    # The whole of the page's example: an image, all components, the address of the hub.
    (example,) = re.findall(r"```yaml\n(# kustomization.yaml\n.*?)```", KUBERNETES_PAGE.read_text(), re.DOTALL)
    shutil.copytree(ROOT / "deploy", tmp_path / "exhume/deploy")
    (tmp_path / "kustomization.yaml").write_text(example)
    read = kustomize(tmp_path)
    expected = by_name(kustomized(*COMPONENTS))
    for each in containers(list(expected.values())).values():
        each["image"] = "registry.example/exhume:1"
    recorder = containers(list(expected.values()))["recorder"]
    (address,) = [each for each in recorder["env"] if each["name"] == "EXHUME_PUSH"]
    address["value"] = "https://hub.company.example:8460"
    assert unordered(by_name(read)) == unordered(expected)
    names = [each["name"] for each in containers(read)["recorder"]["env"]]
    assert names.index("EXHUME_NODE_NAME") < names.index("EXHUME_PUSH_TOKEN_FILE")


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_scrape_configuration_of_the_page(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(scrape_configs:\n.*?)```", KUBERNETES_PAGE.read_text(), re.DOTALL)
    config = yaml.safe_load(block)
    (job,) = config["scrape_configs"]
    # By its name the alerts know that a recorder is gone.
    assert "exhume" in job["job_name"]
    (port,) = containers(kustomized("metrics"))["recorder"]["ports"]
    assert [each["regex"] for each in job["relabel_configs"] if each.get("action") == "keep"] == [port["name"]]
    # Debian's is built without Kubernetes, and the file has to be there.
    assert job.pop("kubernetes_sd_configs")
    (tmp_path / "token").write_text("0123456789abcdef")
    job["authorization"]["credentials_file"] = str(tmp_path / "token")
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    done = subprocess.run([need("promtool"), "check", "config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_names_every_component_and_value() -> None:
    text = KUBERNETES_PAGE.read_text()
    assert {each.name for each in (KUSTOMIZE / "components").iterdir()} == set(COMPONENTS)
    for name in COMPONENTS:
        assert f"components/{name}" in text
    for value in ("kubernetes.enabled", "kubernetes.taint", "metrics.enabled", "push.target", "events.enabled"):
        assert f"{value}=" in text
    for secret in ("exhume-metrics", "exhume-push"):
        assert f"create secret generic {secret}" in text


def test_the_build_of_the_image_gets_all_that_the_page_is_built_from() -> None:
    copied = copied_into_image()
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [(ROOT / "web" / name).resolve().relative_to(ROOT) for name in SOURCES]
    assert [each for each in sources if not any(each.is_relative_to(top) for top in copied)] == []
    assert [each for each in copied if not any(Path(each).is_relative_to(top) for top in allowed)] == []
