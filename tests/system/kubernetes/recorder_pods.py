"""Exhume in the cluster: its DaemonSet from the manifests, and pods of the same kind with less."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.system.deploy.manifests import Object, containers, daemon_set, kustomized
from tests.system.deploy.own_image import IMAGE
from tests.system.kubernetes.own_cluster import PATIENCE_S, Node, until

from exhume.store.read.recording import Recording

LOGS = Path("/var/log/pods")
METRICS_TOKEN = "a-token-of-the-tests"


def fitted(node: Node, recordings: Path, *components: str) -> list[Object]:
    """The manifests with these components for this node: its own image, directories and ports that are free."""
    objects = kustomized(*components)
    pod = daemon_set(objects)["spec"]["template"]["spec"]
    paths = {"recordings": recordings, "containerd": node.runtime.parent, "tracing": node.tracing}
    paths["events"] = events_directory(node)
    for volume in pod["volumes"]:
        if (path := paths.get(volume["name"])) is not None:
            volume["hostPath"]["path"] = str(path)
    # There is no D-Bus on this node.
    pod["volumes"] = [each for each in pod["volumes"] if each["name"] != "dbus"]
    for each in containers(objects).values():
        each["image"] = IMAGE
        each["volumeMounts"] = [mount for mount in each["volumeMounts"] if mount["name"] != "dbus"]
    page, recorder = containers(objects)["page"], containers(objects)["recorder"]
    page["args"] = [f"127.0.0.1:{page_port(recordings)}" if ":" in each else each for each in page["args"]]
    variables = {each["name"]: each for each in recorder["env"]}
    if "metrics" in components:
        port = metrics_port(recordings)
        variables["EXHUME_METRICS"]["value"] = f"$(NODE_IP):{port}"
        recorder["ports"][0]["containerPort"] = port
        secret = {"name": "exhume-metrics", "namespace": "exhume"}
        # After the namespace, and before the pod that waits for it.
        token = {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {"token": METRICS_TOKEN}}
        objects.insert(1, token)
    if "conditions" in components:
        # No proxy of this cluster leads from the service's address to the API server.
        api = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(node.port)}
        recorder["env"] += [
            {"name": name, "value": value} for name, value in {**api, "EXHUME_CLEAR_AFTER": "10s"}.items()
        ]
    return objects


def events_directory(node: Node) -> Path:
    """What /run/exhume is on other nodes."""
    return node.work / "events"


def page_port(recordings: Path) -> int:
    return _port(recordings.with_suffix(".port"))


def metrics_port(recordings: Path) -> int:
    return _port(recordings.with_suffix(".metrics-port"))


def _port(kept: Path) -> int:
    """A port that was free when it was first asked for."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            kept.write_text(str(free.getsockname()[1]))
    return int(kept.read_text())


@contextmanager
def daemon_set_of_exhume(node: Node, recordings: Path, *components: str) -> Iterator[float]:
    """Apply the manifests; yields the seconds from there to the first recorded second."""
    objects = fitted(node, recordings, *components)
    began = time.monotonic()
    node.apply(*objects)
    try:
        until("a second is recorded", lambda: recorded_seconds(recordings) >= 1)
        yield time.monotonic() - began
    finally:
        node.kubectl("delete", "daemonset", "-n", "exhume", "exhume", "--wait=true", patience=PATIENCE_S)


def recorded_seconds(directory: Path) -> int:
    if not (directory / "recorder.lock").exists():
        return 0
    return len(Recording.open(directory).read("anchors").column("time"))


def pod_like_the_recorder(node: Node, name: str, recordings: Path, args: list[str]) -> Object:
    """A pod that runs one command of exhume to its end, with all that the recorder has."""
    spec: Object = daemon_set(fitted(node, recordings))["spec"]["template"]["spec"]
    spec["containers"] = [each for each in spec["containers"] if each["name"] == "recorder"]
    (only,) = spec["containers"]
    only["args"] = args
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        only.pop(probe, None)
    spec["restartPolicy"] = "Never"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "exhume"}, "spec": spec}


def without_volume(pod: Object, name: str) -> Object:
    spec = pod["spec"]
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != name]
    (only,) = spec["containers"]
    only["volumeMounts"] = [each for each in only["volumeMounts"] if each["name"] != name]
    return pod


def ended(node: Node, name: str) -> dict[str, Any]:
    """Wait for a pod to end; its exit code and log."""

    def phase() -> str:
        return str(node.get("pod", "-n", "exhume", name)["status"].get("phase"))

    until(f"pod {name} has ended", lambda: phase() in ("Succeeded", "Failed"))
    status = node.get("pod", "-n", "exhume", name)["status"]["containerStatuses"][0]["state"]["terminated"]
    return {"code": status["exitCode"], "log": log_of(name)}


def log_of(name: str) -> str:
    """What the container of a pod wrote, from kubelet's files: kubectl would need a kubelet that listens beyond
    loopback."""
    lines = [
        line
        for path in sorted(LOGS.glob(f"exhume_{name}_*/*/*.log"))
        for line in path.read_text().splitlines(keepends=True)
    ]
    # Time, stream, and whether the line is whole (F) or goes on in the next (P).
    parts = [line.split(" ", 3) for line in lines]
    return "".join(text.removesuffix("\n") if tag == "P" else text for _, _, tag, text in parts)


def answer_of(result: dict[str, Any]) -> Any:
    """The JSON that a pod printed, in its last line."""
    return json.loads(result["log"].splitlines()[-1])
