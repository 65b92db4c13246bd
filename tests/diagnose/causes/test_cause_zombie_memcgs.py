"""Zombie memory cgroups: the walker, its core and function, the counts, and the leaker."""

from pathlib import Path

import pytest
from tests.diagnose.codes import doubts, reason
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene, at

from exhume.collect.incidents import IncidentMarks
from exhume.diagnose.moments import moments_of
from exhume.model.clock import NANOS, Tick
from exhume.model.finding import Diagnosis, EntityKind, Finding, Severity
from exhume.present.events_view import Explained

SYSCALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64"]
# Reads before 5.8; reclaim after it; reclaim of arm64 with a clone's mark.
READ = [*SYSCALL, "vfs_read", "seq_read", "memcg_numa_stat_show", "mem_cgroup_nr_lru_pages", "mem_cgroup_iter"]
# Of 4.18 and 4.19, where most of the time goes to adding up; and the caches that each memory cgroup had up to 5.8.
SUM = [*SYSCALL, "vfs_read", "seq_read", "memcg_stat_show", "accumulate_memcg_tree"]
SLABS = [*SYSCALL, "vfs_read", "proc_reg_read", "seq_read", "slab_show", "memcg_accumulate_slabinfo"]
RECLAIM = [*SYSCALL, "mem_cgroup_force_empty_write", "do_try_to_free_pages", "shrink_node", "shrink_node_memcgs"]
WALK = [*RECLAIM, "mem_cgroup_iter.part.0", "css_next_descendant_pre"]
PAGES = [*RECLAIM, "shrink_lruvec", "shrink_inactive_list", "shrink_folio_list"]
AGENT = "5" * 63 + "a"


def zombies(scene: Scene, kernel: int, visible: int, growth: int = 0) -> Scene:
    for second in range(0, scene.seconds, 10):
        grown = growth * second // 10
        scene.row(
            "cgroups",
            second,
            hierarchy="memory",
            parent="",
            kernel=kernel + grown,
            visible=visible,
            dying=kernel + grown - visible,
        )
    return scene


def leak(scene: Scene, path: str, since: int, until: int, comm: str = "runc") -> Scene:
    """A cgroup a second that is made and removed, and never released."""
    for number in range(since, until):
        for late, op in ((0.1, "mkdir"), (0.6, "rmdir")):
            scene.row(
                "cgroup_events", number + late, hierarchy=4, op=op, id=number, level=2, path=path, pid=900, comm=comm
            )
    return scene


def hot(scene: Scene, cpu: int = 2, frames: list[str] = READ) -> Scene:
    return scene.core(cpu, 20, 28, system=990).stack(cpu, 20, 28, 0.98, "kubelet", 77, frames)


def the_finding(scene: Scene, directory: Path) -> tuple[Diagnosis, Finding]:
    recording = scene.write(directory)
    answer = judged_recording(recording, scene.window)
    return answer, next(each for each in answer.findings if each.cause == "zombie-memcgs")


def ruled_out(scene: Scene, directory: Path) -> str | None:
    recording = scene.write(directory)
    answer = judged_recording(recording, scene.window)
    assert "zombie-memcgs" not in [each.cause for each in answer.findings]
    return reason(answer, "zombie-memcgs")


@pytest.mark.parametrize("frames", [READ, WALK, [*RECLAIM, "mem_cgroup_iter"], SUM, SLABS])
def test_a_walker_on_one_core_is_named(tmp_path: Path, frames: list[str]) -> None:
    answer, found = the_finding(zombies(hot(Scene(), frames=frames), 68_680, 240), tmp_path)
    assert answer.findings[0] is found and answer.verdict == "starved"
    assert (found.severity, found.culprit.cpu, found.culprit.comm, found.culprit.pid) == ("critical", 2, "kubelet", 77)
    assert found.culprit.function == frames[-1].removesuffix(".part.0")
    assert found.confidence >= 0.85
    assert "68,680 tracked, 240 visible" in found.summary


@pytest.mark.parametrize("dying", [3, 9_000])
def test_where_v1_has_the_memory_controller_the_dying_of_v2_are_others(tmp_path: Path, dying: int) -> None:
    """A tree of v1 that was too large to be walked at once: its visible ones are not known."""
    scene = hot(Scene())
    for second in range(0, 40, 10):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=68_680)
        counts = {"kernel": 200 + dying, "visible": 200, "dying": dying}
        scene.row("cgroups", second, hierarchy="unified", parent="", **counts)
    _, found = the_finding(scene, tmp_path)
    assert (found.severity, found.culprit.cpu) == ("critical", 2)
    assert "zombie-memcgs.uncounted" in doubts(found)


def test_one_core_of_96_is_enough(tmp_path: Path) -> None:
    scene = zombies(hot(Scene(cores=96), cpu=39), 68_680, 240)
    for cpu in range(96):
        if cpu != 39:
            scene.core(cpu, 0, 40, user=400)
    answer, found = the_finding(scene, tmp_path)
    assert answer.findings[0] is found and found.culprit.cpu == 39 and found.severity is Severity.CRITICAL


def test_the_container_that_leaks_is_named_and_is_what_to_stop(tmp_path: Path) -> None:
    scene = zombies(hot(Scene()), 8_000, 240)
    leak(scene, f"/docker/{AGENT}/step-{AGENT[:12]}", 1, 18, comm="busybox")
    text = "container gloomy_agent (image registry/agent:1) started"
    scene.event(
        1,
        "container-start",
        text,
        severity="info",
        source="docker",
        container=AGENT,
        container_name="gloomy_agent",
        image="registry/agent:1",
    )
    _, found = the_finding(scene, tmp_path)
    assert "container gloomy_agent" in found.summary and "registry/agent:1" in found.summary
    stop = next(each for each in found.remedies if each.id == "stop-container")
    assert stop.target == "gloomy_agent" and stop.command == "exhume fix apply docker:gloomy_agent"
    assert "disable-unit" not in [each.id for each in found.remedies]
    assert any("17 cgroups of /docker/*/step-* were removed" in link.text for link in found.chain)


@pytest.mark.parametrize("place", ["/user.slice/user-1000.slice/user@1000.service/app.slice", "/delegated"])
def test_a_user_s_cgroup_with_the_name_of_a_container_is_not_that_container(tmp_path: Path, place: str) -> None:
    scene = zombies(hot(Scene()), 8_000, 240)
    leak(scene, f"{place}/docker-{AGENT}.scope/step-{AGENT[:12]}", 1, 18, comm="busybox")
    named = {"container": AGENT, "container_name": "gloomy_agent", "image": "registry/agent:1"}
    scene.event(1, "container-start", "started", severity="info", source="docker", **named)
    _, found = the_finding(scene, tmp_path)
    assert not [each for each in found.entities if each.kind is EntityKind.CONTAINER]
    assert "gloomy_agent" not in found.summary
    # Nothing to do is aimed at it, neither by its name nor by its id.
    assert not [each for each in found.remedies if "gloomy" in each.command or AGENT[:12] in each.command]
    assert not {"stop-container", "stop-cri-container"} & {each.id for each in found.remedies}


def test_a_recreated_container_is_one_leaker(tmp_path: Path) -> None:
    scene = zombies(hot(Scene()), 8_000, 240)
    for number in range(1, 12):
        container = f"{number:064x}"
        leak(scene, f"/docker/{container}", number, number + 1)
        scene.event(
            number,
            "container-start",
            f"container agent started as {number}",
            severity="info",
            source="docker",
            container=container,
            container_name="agent",
        )
    _, found = the_finding(scene, tmp_path)
    assert next(each for each in found.remedies if each.id == "stop-container").target == "agent"


def restarted(scene: Scene, unit: str | None, *, code: int = 9) -> Scene:
    """A container that leaks and is created again each second, in step with a unit."""
    for number in range(1, 12):
        container = f"{number:064x}"
        leak(scene, f"/docker/{container}", number, number + 1)
        known = {"severity": "info", "source": "docker", "container": container, "container_name": "agent"}
        scene.event(number + 0.1, "container-start", f"container agent started as {number}", **known)
        scene.event(number + 0.6, "container-die", f"container agent ended as {number}", value=float(code), **known)
        if unit is not None:
            reported = {"severity": "info", "source": "systemd", "comm": unit}
            scene.event(number + 0.01, "unit-started", f"unit {unit} started", **reported)
            scene.event(number + 0.7, "unit-ended", f"unit {unit} ended", value=9.0, **reported)
    return scene


def test_the_unit_that_starts_the_leaking_container_is_what_to_disable(tmp_path: Path) -> None:
    scene = restarted(zombies(hot(Scene()), 8_000, 240), "murk.service")
    _, found = the_finding(scene, tmp_path)
    stop = next(each for each in found.remedies if each.id == "disable-unit")
    assert stop.command == "exhume fix apply murk.service"
    assert "stop-container" not in [each.id for each in found.remedies]
    named = {(each.kind, each.name) for each in found.entities}
    assert {(EntityKind.UNIT, "murk.service"), (EntityKind.CONTAINER, "agent")} <= named
    assert "zombie-memcgs.no-client" in doubts(found)


def test_a_client_in_that_unit_leaves_no_doubt(tmp_path: Path) -> None:
    scene = restarted(zombies(hot(Scene()), 8_000, 240), "murk.service")
    command, place = "docker run --rm --name agent image", "/system.slice/murk.service"
    scene.row("processes", 11, pid=900, ppid=1, comm="docker", cmdline=command, cgroup=place)
    _, found = the_finding(scene, tmp_path)
    assert "zombie-memcgs.no-client" not in doubts(found)
    assert any(link.code == "shared.started" and link.evidence for link in found.chain)


@pytest.mark.parametrize(("unit", "code"), [(None, 9), ("murk.service", 3)])
def test_without_a_unit_that_starts_it_the_container_is_what_to_stop(
    tmp_path: Path, unit: str | None, code: int
) -> None:
    _, found = the_finding(restarted(zombies(hot(Scene()), 8_000, 240), unit, code=code), tmp_path)
    assert next(each for each in found.remedies if each.id == "stop-container").target == "agent"
    assert EntityKind.UNIT not in {each.kind for each in found.entities}


def test_the_quoted_rows_are_those_of_the_leaked_cgroups(tmp_path: Path) -> None:
    """Pods that end in the same time, and whose cgroups are released, are not counted with them."""
    scene = leak(zombies(hot(Scene()), 8_000, 240), f"/docker/{AGENT}", 1, 18)
    for number in (5, 9):
        for late, op in ((0.1, "mkdir"), (0.3, "rmdir"), (0.5, "release")):
            event = {
                "hierarchy": 4,
                "op": op,
                "id": 100 + number,
                "level": 4,
                "path": f"/kubepods/burstable/pod{number}/c",
            }
            scene.row("cgroup_events", number + late, pid=901, comm="runc", **event)
    _, found = the_finding(scene, tmp_path)
    link = next(link for link in found.chain if "17 cgroups" in link.text)
    rows = next(each for each in link.evidence if (each.table, each.how) == ("cgroup_events", "count"))
    assert rows.value == 17


def test_many_containers_that_leak_alike_are_not_one(tmp_path: Path) -> None:
    scene = zombies(hot(Scene()), 8_000, 240)
    for number in range(1, 12):
        leak(scene, f"/docker/{number:064x}", number, number + 1)
    _, found = the_finding(scene, tmp_path)
    assert "stop-container" not in [each.id for each in found.remedies]
    assert "leaked by runc, for containers that are created each time" in found.summary


def test_a_unit_that_leaks_is_what_to_disable(tmp_path: Path) -> None:
    scene = zombies(hot(Scene()), 8_000, 240)
    leak(scene, "/system.slice/murk.service/job-7", 1, 18, comm="murkd")
    _, found = the_finding(scene, tmp_path)
    stop = next(each for each in found.remedies if each.id == "disable-unit")
    assert stop.command == "exhume fix apply murk.service"


def test_a_container_of_a_pod_is_stopped_by_its_own_runtime(tmp_path: Path) -> None:
    scene = zombies(hot(Scene()), 8_000, 240)
    leak(scene, f"/kubepods/burstable/pod0f1e2d3c-0000-4000-8000-0123456789ab/{AGENT}/job-1", 1, 18)
    _, found = the_finding(scene, tmp_path)
    assert found.remedies[0].id == "stop-cri-container"


def test_what_keeps_a_pod_alive_is_what_to_stop(tmp_path: Path) -> None:
    scene, uid = zombies(hot(Scene()), 8_000, 240), "0f1e2d3c-0000-4000-8000-0123456789ab"
    leak(scene, f"/kubepods/burstable/pod{uid}/{AGENT}/job-1", 1, 18)
    known = {"container": AGENT, "container_name": "ci/runner-77c4b56cb-4vndj/jobs", "source": "cri"}
    known |= {"pod": uid, "pod_name": "ci/runner-77c4b56cb-4vndj", "owner": "deployment/runner"}
    scene.event(0, "container-seen", "runs", "info", **known)
    _, found = the_finding(scene, tmp_path)
    assert found.remedies[0].command == "kubectl -n ci scale deployment runner --replicas=0"
    assert "container ci/runner-77c4b56cb-4vndj/jobs" in found.summary and "deployment ci/runner" in found.summary
    assert not any("crictl" in each.command for each in found.remedies)


def test_cgroups_that_are_released_are_no_leak(tmp_path: Path) -> None:
    scene = zombies(hot(Scene()), 8_000, 240)
    leak(scene, "/docker/x", 1, 15)
    for number in range(1, 15):
        scene.row("cgroup_events", number + 0.7, hierarchy=4, op="release", id=number, level=2, path="/docker/x")
    _, found = the_finding(scene, tmp_path)
    assert "leaked by" not in found.summary
    assert "zombie-memcgs.no-leaker" in doubts(found)


def test_with_v2_counts_the_parent_is_named(tmp_path: Path) -> None:
    scene = hot(Scene())
    below = {"": 8_000, "/system.slice": 7_900, "/system.slice/murk.service": 7_800, "/user.slice": 90}
    for second in range(0, 40, 10):
        for parent, dying in below.items():
            counts = {"kernel": dying + 50, "visible": 50, "dying": dying}
            scene.row("cgroups", second, hierarchy="unified", parent=parent, **counts)
    _, found = the_finding(scene, tmp_path)
    assert "7,800 of the zombies are below /system.slice/murk.service (unit murk.service)" in [
        link.text for link in found.chain
    ]
    assert next(each.target for each in found.remedies if each.id == "disable-unit") == "murk.service"


def test_few_zombies_are_not_what_a_walker_walks(tmp_path: Path) -> None:
    assert ruled_out(zombies(hot(Scene()), 640, 240), tmp_path) == "zombie-memcgs.few"


def test_reclaim_of_pages_is_not_a_walk(tmp_path: Path) -> None:
    scene = zombies(Scene(), 2_240, 240).core(2, 20, 28, system=990)
    scene.stack(2, 20, 28, 0.93, "hog", 78, PAGES).stack(2, 20, 28, 0.04, "hog", 78, WALK)
    _, found = the_finding(scene, tmp_path)
    assert found.severity is Severity.INFO and found.culprit.cpu is None


def test_zombies_without_a_walk_are_info_and_growing_ones_a_warning(tmp_path: Path) -> None:
    still, growing = zombies(Scene(), 5_240, 240), zombies(Scene(seconds=60), 5_240, 240, growth=20)
    for scene in (still, growing):
        scene.stack(1, 0, 40, 0.1, "server", 31, ["server:work"])
    _, found = the_finding(still, tmp_path / "still")
    assert found.severity is Severity.INFO and found.confidence >= 0.85
    answer, found = the_finding(growing, tmp_path / "growing")
    assert found.severity is Severity.WARNING and answer.verdict == "degraded"


def test_a_few_that_come_and_go_are_no_growth(tmp_path: Path) -> None:
    scene = zombies(Scene(seconds=60), 5_240, 240, growth=3).stack(1, 0, 60, 0.1, "server", 31, ["server:work"])
    _, found = the_finding(scene, tmp_path)
    assert found.severity is Severity.INFO


def test_without_counts_the_walk_alone_speaks_and_less_surely(tmp_path: Path) -> None:
    _, counted = the_finding(zombies(hot(Scene()), 68_680, 240), tmp_path / "counted")
    _, uncounted = the_finding(hot(Scene()), tmp_path / "uncounted")
    assert uncounted.confidence <= counted.confidence - 0.25
    assert "zombie-memcgs.uncounted" in doubts(uncounted)


def test_without_stacks_the_count_alone_speaks_and_less_surely(tmp_path: Path) -> None:
    scene = zombies(hot(Scene()), 68_680, 240).without("samples", "stacks", "frames")
    _, found = the_finding(scene, tmp_path)
    assert 0.3 <= found.confidence <= 0.6 and found.severity is Severity.WARNING
    assert "shared.no-stacks" in doubts(found)


def test_a_busy_healthy_node_has_none(tmp_path: Path) -> None:
    scene = zombies(Scene(), 320, 300)
    for cpu in range(4):
        scene.core(cpu, 0, 40, user=800, system=100).stack(cpu, 0, 40, 0.05, "kubelet", 77, READ)
    assert ruled_out(scene, tmp_path) == "zombie-memcgs.few"


def test_one_of_many_containers_that_leak_is_not_blamed(tmp_path: Path) -> None:
    scene = zombies(Scene(cores=4, seconds=60), 9_000, 240, growth=10)
    for number in range(50):
        leak(scene, f"/docker/{number:064x}", number, number + 1)
    scene.row("processes", 0, pid=900, comm="runc", cgroup=f"/docker/{49:064x}", container=f"{49:064x}")
    _, found = the_finding(scene, tmp_path)
    assert found.culprit.container is None
    assert not any("docker stop" in remedy.command for remedy in found.remedies)


def test_another_process_with_the_number_of_the_maker_is_not_blamed(tmp_path: Path) -> None:
    scene = leak(zombies(Scene(cores=4, seconds=60), 9_000, 240, growth=10), "/lab/x", 0, 50, comm="maker")
    scene.row("processes", 0, pid=900, comm="sshd", cgroup="/system.slice/ssh.service")
    _, found = the_finding(scene, tmp_path)
    assert not any("ssh.service" in remedy.command for remedy in found.remedies)


def grown(since: int) -> Scene:
    """A pod at its own limit all the time, and 200 zombies a second from some second on, for 20 s; with marks."""
    scene, marks = Scene(seconds=240), IncidentMarks()
    for second in range(scene.seconds):
        throttled = 10 if second % 40 < 20 else 3
        values = {"periods": 10, "throttled": throttled, "throttled_ns": throttled * 60_000_000, "quota": 0.5}
        scene.row("throttling", second, cgroup="/kubepods/podA", **values)
    for second in range(0, scene.seconds, 10):
        dying = 70 + second % 3 + max(0, min(second - since, 20)) * 200
        counts = {"hierarchy": "memory", "parent": "", "kernel": dying + 100, "visible": 100, "dying": dying}
        scene.row("cgroups", second, **counts)
        tick = Tick(second, second * NANOS, (second + 1) * NANOS, 0)
        rows = marks.observe(
            tick, [{"cgroups": {"time": [tick.start], **{key: [value] for key, value in counts.items()}}}]
        )
        for mark in zip(*rows["events"].values(), strict=True) if rows else ():
            values = dict(zip(rows["events"], mark, strict=True))
            more = {name: values[name] for name in ("value", "trigger", "source")}
            scene.event(values["time"] // NANOS, "incident", values["text"], **more)
    return scene


def test_a_growth_and_another_incident_next_to_it_are_both_explained(tmp_path: Path) -> None:
    scene = grown(60).core(1, 70, 78, system=1000)
    scene.stack(
        1, 70, 78, 1.0, "mounter", 91, ["do_syscall_64", "vfs_read", "seq_read_iter", "m_show", "show_mountinfo"]
    )
    scene.node(60, 80, mounts=4_000)
    scene.event(70, "incident", "core 1 has spent 2.0 s in the kernel", trigger="hot-core", source="recorder", cpu=1)
    recording = scene.write(tmp_path)
    moments = moments_of(recording.events(scene.window, ["incident"]))
    assert [moment.trigger for moment in moments] == ["dying-cgroups", "hot-core"]
    findings = []
    for moment in moments:
        answer = judged_recording(recording, moment.window.clamp(scene.window), moment.at)
        findings.append(Explained(moment, answer).finding)
    assert [each and each.cause for each in findings] == ["zombie-memcgs", "mount-storm"]


@pytest.mark.parametrize("since", [60, 125])
def test_an_incident_of_growth_is_explained_by_the_growth(tmp_path: Path, since: int) -> None:
    scene = grown(since)
    recording = scene.write(tmp_path)
    (moment,) = moments_of(recording.events(scene.window, ["incident"]))
    window = moment.window.clamp(scene.window)
    answer = judged_recording(recording, window, moment.at)
    finding = Explained(moment, answer).finding
    assert finding is not None and finding.cause == "zombie-memcgs"
    assert moment.marks[0].wall == at(since // 10 * 10)
    assert finding.severity is Severity.WARNING
    assert {"zombie-memcgs.growth", "zombie-memcgs.grown"} & {link.code for link in finding.chain}
