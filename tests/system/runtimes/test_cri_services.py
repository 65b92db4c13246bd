"""Pods of a real containerd, as an audit sees them: a container that is made again and again, one that is well, one
that is done; and what kubelet's files tell of their owners."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.runtimes.own_containerd import OwnContainerd, compiled, own_containerd
from tests.system.runtimes.runtime_parts import (
    COMPLAINT,
    IMAGE,
    PATIENCE_S,
    READY,
    assert_rate,
    ends_when_asked,
)
from tests.system.zombies.own_docker import until

from exhume.collect.containers import cri as client
from exhume.collect.containers.cri import Cri, CriError
from exhume.collect.containers.cri_services import cri_restarts, cri_services
from exhume.collect.node_root import NodeRoot
from exhume.diagnose.audit.traits import traits_of
from exhume.model.audit import Manager, Service, Trait

pytestmark = [pytest.mark.root, pytest.mark.needs("containerd", "ctr", "runc", "busybox")]

CRASHES = 6
LABELS = {"app": "web", "pod-template-hash": "5d78c9869d"}
STATIC = {"kubernetes.io/config.source": "file"}
MANIFEST = """apiVersion: v1
kind: Pod
metadata:
  labels:
    name: other
  name: pro-xy
spec:
  containers:
  - name: proxy
"""


@pytest.fixture(scope="module")
def containerd() -> Iterator[OwnContainerd]:
    with own_containerd(IMAGE) as own:
        yield own


def look(containerd: OwnContainerd) -> dict[str, Service]:
    seen = cri_services(containerd.socket)
    assert seen.blind_spots == []
    return {service.name: service for service in seen.services}


def ended(containerd: OwnContainerd, container: str) -> None:
    with Cri(containerd.socket) as runtime:
        until("it ended", lambda: runtime.status(container).status.finished_at, PATIENCE_S)


@pytest.fixture(scope="module")
def crashing(containerd: OwnContainerd) -> list[str]:
    """What is left of a container that crashed some times, with one that is well next to it; the ids, oldest first."""
    pod = containerd.run_pod("web-5d78c9869d-abcde", "uid-1", LABELS, {})
    containerd.start(pod, "steady", "exec busybox sleep 600", 0)
    kept: list[str] = []
    for attempt in range(CRASHES):
        kept.append(containerd.start(pod, "web", f"busybox sleep 0.1; {COMPLAINT}", attempt))
        ended(containerd, kept[-1])
        # As kubelet does, which keeps the last one next to the present one.
        if len(kept) > 2:
            containerd.remove(kept.pop(0))
    return kept


def test_one_that_crashes_for_ever_is_one_service_with_its_output(
    containerd: OwnContainerd, crashing: list[str]
) -> None:
    web = look(containerd)["shop/web-5d78c9869d-abcde/web"]
    assert web.manager is Manager.CRI and web.key == "cri:shop/web-5d78c9869d-abcde/web" and web.id == crashing[-1]
    assert (web.state, web.result, web.detail, web.pid, web.age_s) == ("exited", "exit-code", "Error", None, None)
    assert web.restarts == CRASHES - 1 and web.image == IMAGE
    assert web.pod == "shop/web-5d78c9869d-abcde" and web.owner == "deployment shop/web"
    assert web.last_exit is not None and web.last_exit.code == 7 and web.last_exit.at is not None
    assert web.created is not None and web.created < web.last_exit.at < time.time_ns()
    assert set(web.log) == {"no credentials", "giving up"}
    assert web.command is not None and "giving up" in web.command
    history = web.history
    assert history is not None and (history.starts, history.failures) == (CRASHES, CRASHES)
    assert history.success_rate == 0.0 and len(history.exits) == 2
    with Cri(containerd.socket) as runtime:
        (made,) = (each.created_at for each in runtime.sandboxes() if each.metadata.uid == "uid-1")
    assert_rate(history, CRASHES - 1, made)
    assert history.age_pattern.startswith(("never a second old: the last 2 runs", "always a few seconds old"))


def test_its_restarts_are_counted_by_the_number_of_its_attempts(containerd: OwnContainerd, crashing: list[str]) -> None:
    for name, count in (("web", CRASHES - 1), ("steady", 0), ("none", None)):
        assert cri_restarts([containerd.socket], f"shop/web-5d78c9869d-abcde/{name}") == count
    assert cri_restarts([], "shop/web-5d78c9869d-abcde/web") is None


def test_one_that_is_well_is_reported_with_its_process_and_cgroup(
    containerd: OwnContainerd, crashing: list[str]
) -> None:
    since = time.time_ns()
    steady = look(containerd)["shop/web-5d78c9869d-abcde/steady"]
    assert (steady.state, steady.result, steady.restarts, steady.log) == ("running", "", 0, ())
    assert steady.cgroup == f"/{containerd.cgroup}/{steady.id}"
    assert steady.pid is not None
    # Started is one before its program has taken the place of the runtime's.
    comm = Path(f"/proc/{steady.pid}/comm")
    until("it is busybox's", lambda: comm.read_text().strip() == "busybox", PATIENCE_S)
    assert steady.age_s is not None and steady.started is not None and steady.last_exit is None
    assert 0 < since - steady.started <= steady.age_s * 10**9 + 10**6
    assert steady.age_s * 10**9 <= time.time_ns() - steady.started + 10**6


def test_ends_that_are_no_crash(containerd: OwnContainerd) -> None:
    pod = containerd.run_pod("batch-x7", "uid-2", {"job-name": "batch"}, {})
    done = containerd.start(pod, "done", "echo all well", 0)
    asked = containerd.start(pod, "asked", ends_when_asked(143), 0)
    until("it listens", lambda: READY in containerd.log_of("batch-x7", "asked", 0), PATIENCE_S)
    containerd.stop(asked, PATIENCE_S // 2)
    for each in (done, asked):
        ended(containerd, each)
    assert any(is_known_to_have_run_out_of_memory(containerd, pod, attempt) for attempt in range(10))
    seen = look(containerd)
    results = {name: seen[f"shop/batch-x7/{name}"].result for name in ("done", "asked", "greedy")}
    assert results == {"done": "success", "asked": "stopped", "greedy": "oom-kill"}
    assert seen["shop/batch-x7/done"].owner == "job shop/batch"
    assert seen["shop/batch-x7/done"].log == ()


def is_known_to_have_run_out_of_memory(containerd: OwnContainerd, pod: str, attempt: int) -> bool:
    """The runtime hears of the reason after the end, or never, where the cgroup is gone before it heard of it: then
    another attempt has to."""
    greedy = containerd.start(pod, "greedy", "x=a; while :; do x=$x$x; done", attempt, memory=32 << 20)
    ended(containerd, greedy)
    patience = time.monotonic() + 5
    with Cri(containerd.socket) as runtime:
        while runtime.status(greedy).status.reason != "OOMKilled":
            if time.monotonic() > patience:
                return False
            time.sleep(0.1)
    return True


def test_a_static_pod_is_reported_with_its_manifest(containerd: OwnContainerd, tmp_path: Path) -> None:
    pod = containerd.run_pod("pro-xy-node7", "uid-3", {}, STATIC)
    containerd.start(pod, "proxy", "exec busybox sleep 600", 0)
    kubelet, manifests = tmp_path / "var/lib/kubelet", tmp_path / "srv/pods"
    for directory in (kubelet, manifests, tmp_path / "proc"):
        directory.mkdir(parents=True)
    (kubelet / "config.yaml").write_text("kind: KubeletConfiguration\nstaticPodPath: /srv/pods/\n")
    (manifests / "a.yaml").write_text(MANIFEST.replace("pro-xy", "web"))
    (manifests / "b.yaml").write_text(MANIFEST)
    # Neither a name that is the beginning of another nor what is no file leads astray.
    (manifests / "0.yaml").write_text(MANIFEST.replace("pro-xy", "pro"))
    os.mkfifo(manifests / "00.yaml")
    seen = cri_services(containerd.socket, root=NodeRoot(tmp_path)).services
    proxy = next(service for service in seen if service.name == "shop/pro-xy-node7/proxy")
    assert proxy.fragment == "/srv/pods/b.yaml" and proxy.owner == "static pod shop/pro-xy-node7 of this node's kubelet"
    # As JSON, too; and without any that fits.
    (manifests / "b.yaml").write_text('{"kind": "Pod", "metadata": {"name": "pro-xy"}}')
    seen = cri_services(containerd.socket, root=NodeRoot(tmp_path)).services
    assert "/srv/pods/b.yaml" in {service.fragment for service in seen}
    # What kubelet was started with counts before its usual configuration, the directory itself before another file.
    process, elsewhere = tmp_path / "proc/77", tmp_path / "srv/more"
    process.mkdir()
    elsewhere.mkdir()
    (process / "comm").write_text("kubelet\n")
    shutil.move(manifests / "b.yaml", elsewhere / "c.yaml")
    (tmp_path / "srv/kubelet.yaml").write_text("staticPodPath: /srv/more\n")
    for options in (("--config=/srv/kubelet.yaml",), ("--config", "/srv/none", "--pod-manifest-path", "/srv/more/")):
        (process / "cmdline").write_text("\0".join(("/usr/bin/kubelet", "--v=2", *options)) + "\0")
        seen = cri_services(containerd.socket, root=NodeRoot(tmp_path)).services
        assert "/srv/more/c.yaml" in {service.fragment for service in seen}, options
    shutil.rmtree(elsewhere)
    shutil.rmtree(manifests)
    seen = cri_services(containerd.socket, root=NodeRoot(tmp_path)).services
    assert {service.fragment for service in seen} == {None}


def test_the_pods_of_a_job_are_one_service(containerd: OwnContainerd) -> None:
    made = []
    for number, suffix in enumerate(("x7k2p", "b4c9d", "z2w5v", "q8r6t")):
        pod = containerd.run_pod(f"import-{suffix}", f"uid-job-{number}", {"job-name": "import"}, {})
        made.append(containerd.start(pod, "run", COMPLAINT, 0))
        ended(containerd, made[-1])
    rows = [each for name, each in look(containerd).items() if "/import-" in name]
    (job,) = rows
    assert (job.id, job.name, job.workload) == (made[-1], "shop/import-q8r6t/run", "job/import")
    assert job.earlier == ("shop/import-x7k2p/run", "shop/import-b4c9d/run", "shop/import-z2w5v/run")
    assert job.history is not None and (job.history.starts, job.history.failures) == (4, 4)
    assert len(job.history.exits) == 4 and job.history.exits[0] == job.last_exit
    # Each of them was started once.
    assert job.restarts == 0 and Trait.CRASH_LOOP in traits_of(job, time.time_ns())


def test_the_name_before_version_one_works_as_well(containerd: OwnContainerd, crashing: list[str]) -> None:
    with Cri(containerd.socket, ("runtime.v0", "runtime.v1alpha2")) as runtime:
        assert runtime.version.runtime_api_version == "v1alpha2"
        assert {each.id for each in runtime.containers()} >= set(crashing)
        assert runtime.status(crashing[-1]).status.exit_code == 7


def test_a_path_with_characters_of_an_address_is_a_path(
    containerd: OwnContainerd, crashing: list[str], tmp_path: Path
) -> None:
    odd = tmp_path / "a b%20?#ü"
    odd.mkdir()
    (odd / "c.sock").symlink_to(containerd.socket)
    assert cri_services(odd / "c.sock").blind_spots == []


def test_what_does_not_speak_it_is_a_blind_spot(containerd: OwnContainerd, tmp_path: Path) -> None:
    seen = cri_services(tmp_path / "none.sock")
    assert seen.services == [] and "No such file" in seen.blind_spots[0]
    with pytest.raises(CriError, match="does not speak CRI"):
        Cri(containerd.socket, ("runtime.v0",))
    with Cri(containerd.socket) as runtime, pytest.raises(CriError, match="not found"):
        runtime.status("0" * 64)


def test_a_containerd_with_its_cri_off_says_so() -> None:
    with own_containerd(IMAGE, off=("io.containerd.grpc.v1.cri",)) as quiet:
        seen = cri_services(quiet.socket)
    why = "it speaks no CRI, or has it switched off"
    assert seen.services == [] and seen.blind_spots == [f"what {quiet.socket} runs itself can't be seen: {why}"]


def test_the_compiled_messages_are_those_of_the_source(tmp_path: Path) -> None:
    source = Path(client.__file__).with_name("runtime.proto")
    made = compiled(source, tmp_path)
    assert made == type(made).FromString(source.with_suffix(".protoset").read_bytes())
