"""The objects of deploy/kubernetes and of the Helm chart, as a cluster would get them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml
from tests.go_programs import compiled

ROOT = Path(__file__).resolve().parents[3]
KUSTOMIZE, CHART = ROOT / "deploy/kubernetes", ROOT / "deploy/helm/exhume"
Object = dict[str, Any]


def kustomized(*components: str) -> list[Object]:
    """What `kubectl kustomize` prints of the base with these components: the base only lists files and sets the
    namespace, components add to lists and to what has a name. A test compares it with kubectl's own reading."""
    base = KUSTOMIZE / "base"
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())
    assert set(listed) == {"apiVersion", "kind", "namespace", "resources"}
    found = [each for name in listed["resources"] for each in yaml.safe_load_all((base / name).read_text())]
    # So that both ways of reading them agree.
    assert all(each["metadata"].get("namespace", listed["namespace"]) == listed["namespace"] for each in found)
    for name in components:
        _add_component(found, KUSTOMIZE / "components" / name)
    return found


def platform_components() -> list[str]:
    """Those of the overlay deploy/kubernetes/platform."""
    listed = yaml.safe_load((KUSTOMIZE / "platform/kustomization.yaml").read_text())
    assert listed["resources"] == ["../base"]
    return [Path(each).name for each in listed["components"]]


def _add_component(objects: list[Object], directory: Path) -> None:
    listed = yaml.safe_load((directory / "kustomization.yaml").read_text())
    assert set(listed) <= {"apiVersion", "kind", "resources", "patches"}
    for name in listed.get("resources", ()):
        objects += yaml.safe_load_all((directory / name).read_text())
    for patch in listed["patches"]:
        content = yaml.safe_load((directory / patch["path"]).read_text())
        if "target" not in patch:
            assert content["kind"] == "DaemonSet"
            _merge(daemon_set(objects), content)
            continue
        (role,) = [each for each in objects if each["kind"] == patch["target"]["kind"]]
        for each in content:
            assert (each["op"], each["path"]) == ("add", "/rules/-")
            role["rules"].append(each["value"])


def _merge(into: Object, patch: Object) -> None:
    """A strategic merge: elements of lists have names here, and new ones come first."""
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif isinstance(value, list):
            known = {each["name"]: each for each in into.get(key, ())}
            for each in value:
                _merge(known.setdefault(each["name"], {}), each)
            first = [each["name"] for each in value]
            into[key] = [known[name] for name in (*first, *(name for name in known if name not in first))]
        else:
            into[key] = value


def rendered(namespace: str = "exhume", **values: Any) -> list[Object]:
    """The objects of the chart with these values over its own."""
    known = {**yaml.safe_load((CHART / "values.yaml").read_text()), **values}
    files = sorted(map(str, (CHART / "templates").iterdir()))
    done = subprocess.run(
        [compiled(Path(__file__).with_name("render_chart.go")), *files],
        input=json.dumps({"Values": known, "Release": {"Namespace": namespace}}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]


def daemon_set(objects: list[Object]) -> Object:
    (found,) = [each for each in objects if each["kind"] == "DaemonSet"]
    return found


def containers(objects: list[Object]) -> dict[str, Object]:
    return {each["name"]: each for each in daemon_set(objects)["spec"]["template"]["spec"]["containers"]}
