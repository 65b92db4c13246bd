"""A culprit in a pod is reported by the names of pod and container; one whose names were not recorded by its ids."""

from pathlib import Path

from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene

from exhume.collect.containers.identity import identify
from exhume.diagnose.zombie_report import recorded_names
from exhume.model.finding import Diagnosis, Finding
from exhume.present.html.reports import diagnosis_data

UID, ID = "0f1e2d3c-0000-4000-8000-0123456789ab", "5a" * 32
POD_GROUP = f"/kubepods/burstable/pod{UID}"
NAMES = {"pod_name": "shop/cart-0", "container_name": "shop/cart-0/web"}


def throttled(cgroup: str, **names: str) -> Scene:
    scene = Scene(cores=8, seconds=40)
    for second in range(20, 30):
        answer = {"periods": 10, "throttled": 9, "throttled_ns": 1_350_000_000, "quota": 0.5}
        scene.row("throttling", second, cgroup=cgroup, **answer)
    scene.stack(2, 20, 30, 0.3, "trainer", 77, ["app:main"])
    place = {"cgroup": f"{POD_GROUP}/{ID}", "container": ID, "pod": UID}
    return scene.row("processes", 5, pid=77, comm="trainer", **place, **names)


def hogged(**names: str) -> Scene:
    scene = Scene(cores=4, seconds=40).core(2, 20, 30, user=1000, wait_ns=2_000_000_000)
    scene.stack(2, 20, 30, 1.0, "trainer", 77, ["app:main"])
    place = {"cgroup": f"{POD_GROUP}/{ID}", "container": ID, "pod": UID}
    return scene.row("processes", 5, pid=77, comm="trainer", **place, **names)


def of(found: Diagnosis, cause: str) -> Finding:
    return next(each for each in found.findings if each.cause == cause)


def test_a_throttled_container_of_a_pod(tmp_path: Path) -> None:
    scene = throttled(f"{POD_GROUP}/{ID}", **NAMES)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = of(found, "cfs-throttling")
    assert "container shop/cart-0/web (5a5a5a5a5a5a)" in top.summary
    culprit = top.culprit
    assert (culprit.container, culprit.pod) == (ID, UID)
    assert (culprit.container_name, culprit.pod_name) == ("shop/cart-0/web", "shop/cart-0")
    (raising,) = [each for each in top.remedies if each.id == "raise-pod-limit"]
    assert raising.target == "shop/cart-0/web" and raising.target in raising.text
    # Several kinds of owners name their pods like this one, and no event says which it is.
    assert (raising.action, raising.command) == ("advise", "")
    assert not [link for link in top.chain if link.code == "owner.runs-in"], "it is named already"
    reported = diagnosis_data(recording, found, None)["diagnosis"]["findings"]
    (shown,) = [each["culprit"] for each in reported if each["cause"] == "cfs-throttling"]
    assert (shown["pod_name"], shown["pod"]) == ("shop/cart-0", UID)
    assert (shown["container_name"], shown["container"]) == ("shop/cart-0/web", ID)


def test_the_owner_of_a_throttled_pod_is_in_the_command(tmp_path: Path) -> None:
    scene = throttled(f"{POD_GROUP}/{ID}", **NAMES)
    answer = {"container": ID, "container_name": "shop/cart-0/web", "pod": UID, "pod_name": "shop/cart-0"}
    scene.event(1, "container-seen", "runs", "info", source="cri", owner="statefulset/cart", **answer)
    found = judged_recording(scene.write(tmp_path), scene.window)
    top = of(found, "cfs-throttling")
    (raising,) = [each for each in top.remedies if each.id == "raise-pod-limit"]
    assert raising.command == "kubectl -n shop set resources statefulset cart -c web --limits=cpu=2"
    assert "stateful set shop/cart" in top.summary
    # It is for the cluster, wherever the diagnosis is read; what writes to a file of the node is for that node.
    for here, node in (("laptop", "node-1"), ("node-1", None)):
        places = {each.id: each.node for each in of(found.seen_from(here), "cfs-throttling").remedies}
        assert places == {"raise-pod-limit": None, "raise-cgroup-quota": node}


def test_the_owner_that_the_api_named_counts_more_than_that_of_labels(tmp_path: Path) -> None:
    scene = throttled(f"{POD_GROUP}/{ID}", **NAMES)
    answer = {"pod": UID, "pod_name": "shop/cart-0"}
    owner = "postgres.example.dev/cart"
    scene.event(1, "pod-owner", "belongs", "info", source="kubernetes", owner=owner, **answer)
    scene.event(2, "container-start", "started", "info", source="cri", owner="statefulset/cart", container=ID, **answer)
    top = of(judged_recording(scene.write(tmp_path), scene.window), "cfs-throttling")
    assert top.culprit.owner == owner
    (raising,) = [each for each in top.remedies if each.id == "raise-pod-limit"]
    assert (raising.action, raising.command) == ("run", "kubectl -n shop edit postgres.example.dev cart")


def test_a_pod_is_named_by_the_api_alone(tmp_path: Path) -> None:
    """Where kubelet's directories can't be read and the runtime's socket is not there."""
    scene = hogged()
    answer = {"pod": UID, "pod_name": "shop/cart-0", "owner": "raycluster.ray.io/cart"}
    scene.event(1, "pod-owner", "belongs", "info", source="kubernetes", **answer)
    top = of(judged_recording(scene.write(tmp_path), scene.window), "user-hog")
    assert (top.culprit.pod_name, top.culprit.owner) == ("shop/cart-0", "raycluster.ray.io/cart")
    (link,) = [link for link in top.chain if link.code == "owner.runs-in"]
    assert link.text == "trainer (pid 77) runs in pod shop/cart-0, of raycluster shop/cart"


def test_a_container_that_is_gone_is_named_by_its_events(tmp_path: Path) -> None:
    scene = throttled(f"{POD_GROUP}/{ID}")
    answer = {"container": ID, "container_name": "shop/cart-7f8d9c4bd5-x2c4v/web", "pod": UID}
    scene.event(1, "container-die", "ended", "info", source="cri", pod_name="shop/cart-7f8d9c4bd5-x2c4v", **answer)
    top = of(judged_recording(scene.write(tmp_path), scene.window), "cfs-throttling")
    assert top.culprit.container_name == "shop/cart-7f8d9c4bd5-x2c4v/web"
    (raising,) = [each for each in top.remedies if each.id == "raise-pod-limit"]
    # By the pod's name alone.
    assert raising.command == "kubectl -n shop set resources deployment cart -c web --limits=cpu=2"


def test_a_throttled_pod(tmp_path: Path) -> None:
    scene = throttled(POD_GROUP, **NAMES)
    top = of(judged_recording(scene.write(tmp_path), scene.window), "cfs-throttling")
    assert "trainer in pod shop/cart-0" in top.summary


def test_a_throttled_pods_command_names_the_container_that_had_most_of_its_limit(tmp_path: Path) -> None:
    scene, other = throttled(POD_GROUP, **NAMES), "6b" * 32
    scene.stack(3, 20, 30, 0.1, "proxy", 78, ["app:main"])
    place = {"cgroup": f"{POD_GROUP}/{other}", "container": other, "pod": UID, "pod_name": "shop/cart-0"}
    scene.row("processes", 5, pid=78, comm="proxy", container_name="shop/cart-0/proxy", **place)
    answer = {"container": ID, "container_name": "shop/cart-0/web", "pod": UID, "pod_name": "shop/cart-0"}
    scene.event(1, "container-seen", "runs", "info", source="cri", owner="statefulset/cart", **answer)
    top = of(judged_recording(scene.write(tmp_path), scene.window), "cfs-throttling")
    (raising,) = [each for each in top.remedies if each.id == "raise-pod-limit"]
    assert raising.command == "kubectl -n shop set resources statefulset cart -c web --limits=cpu=2"
    assert raising.target == "shop/cart-0/web" and "trainer in pod shop/cart-0" in top.summary


def test_a_container_without_a_recorded_name(tmp_path: Path) -> None:
    scene = throttled(f"{POD_GROUP}/{ID}", pod_name="shop/cart-0")
    top = of(judged_recording(scene.write(tmp_path), scene.window), "cfs-throttling")
    assert "container (5a5a5a5a5a5a) of pod shop/cart-0" in top.summary


def test_recordings_without_names_tell_ids(tmp_path: Path) -> None:
    scene = throttled(POD_GROUP)
    top = of(judged_recording(scene.write(tmp_path), scene.window), "cfs-throttling")
    assert f"pod {UID}" in top.summary
    assert (top.culprit.pod, top.culprit.pod_name, top.culprit.container_name) == (UID, None, None)


def test_the_owner_of_a_program_has_its_evidence(tmp_path: Path) -> None:
    scene = hogged(**NAMES)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    answer = of(found, "user-hog")
    (link,) = [link for link in answer.chain if link.code == "owner.runs-in"]
    assert (link.role, link.text) == ("culprit", "trainer (pid 77) runs in container shop/cart-0/web")
    assert [(each.table, each.value) for each in link.evidence] == [("processes", "shop/cart-0")]
    roles = [each.role for each in answer.chain]
    assert roles == sorted(roles, key=["symptom", "mechanism", "culprit", "root_cause"].index)
    without = hogged()
    bare = of(judged_recording(without.write(tmp_path / "bare"), without.window), "user-hog")
    assert len(bare.chain) == len(answer.chain) - 1


def test_containers_that_are_gone_are_named_from_the_recording(tmp_path: Path) -> None:
    """A leaker's containers, of which the node itself knows nothing any more."""
    answer, unnamed, other = "1b" * 32, "2c" * 32, "3d" * 32
    scene = Scene(cores=1, seconds=10)
    known = {"container_name": "shop/cart-0/web", "image": "cart:3", "pod": UID, "pod_name": "shop/cart-0"}
    scene.event(1, "container-die", "ended", "info", source="cri", container=answer, **known)
    scene.row("processes", 2, pid=77, comm="web", cgroup=f"{POD_GROUP}/{ID}", pod=UID, pod_name="shop/cart-0")
    wanted = [identify(path) for path in (f"{POD_GROUP}/{answer}", f"{POD_GROUP}/{unnamed}", f"/docker/{other}")]
    found = recorded_names(scene.write(tmp_path), scene.window, {each for each in wanted if each is not None})
    assert {number: (name.name, name.image) for number, name in found.items()} == {
        answer: ("shop/cart-0/web", "cart:3"),
        # Its own name was not recorded: the pod in its path was.
        unnamed: ("shop/cart-0", None),
    }
