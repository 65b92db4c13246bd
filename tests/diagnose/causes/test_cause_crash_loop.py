"""A crash loop is reported by what ends and begins again: by its cgroups, by failed ends; jobs and scripts are none."""

import subprocess
import time
from pathlib import Path

import pytest
from tests.diagnose.codes import doubts
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.evidence.case import Case
from exhume.lab.score.play import recorder
from exhume.model.clock import Window
from exhume.model.finding import Diagnosis, Finding
from exhume.store.read.recording import Recording

IMPORT = ["python3:_start", "libpython3.so:import_module"]


def reported(found: Diagnosis) -> Finding | None:
    return next((finding for finding in found.findings if finding.cause == "crash-loop"), None)


def hex_id(number: int) -> str:
    return f"{number:064x}".replace("0", "c", 40)


def cgroups(scene: Scene, starts: list[float], life: float, path: str, hierarchy: int = 4) -> Scene:
    """A cgroup made and removed at each start; `{}` in its path is a new id."""
    for number, start in enumerate(starts):
        made = path.format(hex_id(77 + number))
        row = {"hierarchy": hierarchy, "id": 900 + number, "level": 2, "path": made}
        scene.row("cgroup_events", start, op="mkdir", pid=40, comm="dockerd", **row)
        scene.row("cgroup_events", start + life, op="rmdir", pid=40, comm="dockerd", **row)
    return scene


def inside(scene: Scene, starts: list[float], path: str, commands: list[str]) -> Scene:
    """The process in each of those cgroups."""
    for number, start in enumerate(starts):
        command = commands[number % len(commands)]
        scene.row(
            "processes",
            start,
            pid=3_000 + number,
            ppid=40,
            comm=command.split("/")[-1].split()[0],
            cmdline=command,
            cgroup=path.format(hex_id(77 + number)),
            container=hex_id(77 + number)[:12],
        )
    return scene


def restarts(scene: Scene, seconds: list[float], comm: str, severity: str = "warning", times: float = 5.0) -> Scene:
    for second in seconds:
        text = f"{comm} was started 8 times in 4.1 s, one after the other, each ended with code 1"
        scene.event(second, "restart", text, severity, source="recorder", comm=comm, pid=3_000, value=times)
    return scene


EVERY_TWO = [4.0 + 2.5 * n for n in range(14)]


@pytest.mark.parametrize(
    ("path", "engine", "stopped"),
    [
        ("/docker/{}", "docker", "exhume fix apply docker:"),
        ("/machine.slice/libpod-{}.scope", "podman", "exhume fix apply podman:"),
        ("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{}.scope", "crictl", ""),
    ],
)
def test_a_container_that_is_made_again_and_again_is_a_loop(
    tmp_path: Path, path: str, engine: str, stopped: str
) -> None:
    scene = cgroups(Scene(cores=4, seconds=60), EVERY_TWO, 1.2, path)
    inside(scene, EVERY_TWO, path, ["/agent --join"])
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity) == ("crash-loop", "warning")
    assert (top.culprit.comm, top.culprit.cmdline) == ("agent", "/agent --join")
    assert "2.5 s" in top.summary
    assert top.confidence >= 0.75
    # No command takes the pattern of many containers, nor is one of systemd's about a container.
    assert not any("*" in remedy.command or "systemctl" in remedy.command for remedy in top.remedies)
    assert top.remedies[0].command.split()[:4] == [engine, "logs", "--tail", "100"]
    fixes = [remedy.command for remedy in top.remedies if remedy.command.startswith("exhume fix apply")]
    assert [command.startswith(stopped) for command in fixes] == [True] * bool(stopped)


def test_a_unit_needs_no_command_to_be_known_as_one_thing(tmp_path: Path) -> None:
    scene = cgroups(Scene(cores=4, seconds=60), EVERY_TWO, 0.3, "/system.slice/ecs.service")
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.severity) == ("crash-loop", "warning")
    assert "ecs.service" in top.summary
    assert any(
        remedy.target == "ecs.service" and remedy.command == "exhume fix apply ecs.service" for remedy in top.remedies
    )


@pytest.mark.parametrize(("elsewhere", "fails"), [("/system.slice/ci.service", False), (None, True)])
def test_ends_of_the_same_name_elsewhere_are_not_those_of_a_unit(
    tmp_path: Path, elsewhere: str | None, fails: bool
) -> None:
    """A unit that is started again and again, and a script that runs the same program with exit code 1."""
    unit = "/system.slice/recorder.service"
    scene = inside(cgroups(Scene(cores=4, seconds=60), EVERY_TWO, 1.2, unit), EVERY_TWO, unit, ["/opt/exhume record"])
    restarts(scene, [12.0, 17.0, 22.0, 27.0], "exhume")
    if elsewhere is not None:
        scene.row("processes", 30, pid=3_000, ppid=41, comm="exhume", cmdline="/opt/exhume audit", cgroup=elsewhere)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None and "recorder.service" in finding.summary
    assert finding.severity == "warning", "and not hidden by the script's, which is worth knowing"
    assert ("crash-loop.ends" in {link.code for link in finding.chain}) is fails


def test_a_cgroup_of_several_hierarchies_counts_once(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=60)
    for hierarchy in (2, 4, 9):
        cgroups(scene, EVERY_TWO, 0.3, "/system.slice/ecs.service", hierarchy)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert "14 times" in " ".join(link.text for link in finding.chain)


def test_a_supervised_program_that_fails_and_costs_something_is_a_warning(tmp_path: Path) -> None:
    scene = restarts(Scene(cores=4, seconds=40), [12.0, 17.0, 22.0, 27.0], "ingest")
    scene.row("processes", 20, pid=3_000, ppid=40, comm="ingest", cmdline="/opt/ingest --all", cgroup="/app")
    for second in range(8, 28):
        scene.stack(2, second, second + 1, 0.2, "ingest", 2_900 + second, IMPORT).core(2, second, second + 1, user=210)
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.severity, top.culprit.comm) == ("crash-loop", "warning", "ingest")
    assert top.culprit.cgroup == "/app"
    assert "1.0 s" in top.summary
    # Neither a unit nor a container: there is no log of it to name.
    assert [remedy.command for remedy in top.remedies] == ["exhume events --kind restart"]


def test_one_that_costs_nothing_is_worth_knowing(tmp_path: Path) -> None:
    scene = restarts(Scene(cores=96, seconds=40), [12.0, 17.0, 22.0], "grep")
    for cpu in range(96):
        scene.core(cpu, 0, 40, user=400, system=50)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert finding.severity == "info"


def test_without_exit_codes_a_repeat_is_less_sure_and_only_worth_knowing(tmp_path: Path) -> None:
    sure = restarts(Scene(cores=4, seconds=40), [12.0, 17.0, 22.0], "poller")
    unsure = restarts(Scene(cores=4, seconds=40), [12.0, 17.0, 22.0], "poller", severity="info")
    for scene in (sure, unsure):
        scene.stack(1, 8, 22, 0.1, "poller", 3_000, IMPORT)
    known = reported(judged_recording(sure.write(tmp_path / "sure"), sure.window))
    unknown = reported(judged_recording(unsure.write(tmp_path / "unsure"), unsure.window))
    assert known is not None
    assert unknown is not None
    assert unknown.severity == "info"
    assert unknown.confidence < known.confidence - 0.15
    assert "crash-loop.helper" in doubts(unknown)


def test_a_slow_loop_is_worth_knowing(tmp_path: Path) -> None:
    starts = [5.0 + 40 * n for n in range(5)]
    scene = cgroups(Scene(cores=4, seconds=200), starts, 2.0, "/system.slice/ecs.service")
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert finding.severity == "info"


def test_jobs_that_follow_each_other_are_no_loop(tmp_path: Path) -> None:
    """One container after the other, but another command in each."""
    scene = cgroups(Scene(cores=4, seconds=60), EVERY_TWO, 1.2, "/docker/{}")
    inside(
        scene,
        EVERY_TWO,
        "/docker/{}",
        ["/bin/lint", "/bin/build", "/bin/test", "/bin/pack"] + [f"/j{n}" for n in range(9)],
    )
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_a_crowd_of_containers_is_no_loop(tmp_path: Path) -> None:
    starts = [4.0 + 0.7 * n for n in range(40)]
    scene = cgroups(Scene(cores=4, seconds=60), starts, 8.0, "/docker/{}")
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_logins_and_commands_of_their_own_unit_are_no_loop(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=60)
    for number, start in enumerate(EVERY_TWO):
        cgroups(scene, [start], 1.0, f"/user.slice/user-0.slice/session-{number}.scope")
        cgroups(scene, [start], 1.0, f"/system.slice/run-r{number:032x}.scope")
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_a_storm_of_cgroups_is_not_a_loop(tmp_path: Path) -> None:
    starts = [10.0 + 0.01 * n for n in range(900)]
    scene = cgroups(Scene(cores=4, seconds=40), starts, 0.005, "/batch/{}")
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_it_needs_no_stacks(tmp_path: Path) -> None:
    scene = restarts(Scene(cores=4, seconds=40), [12.0, 17.0], "ingest").without("samples", "processes")
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert finding.culprit.comm == "ingest"


def test_a_healthy_node_has_none(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=40)
    for cpu in range(8):
        scene.core(cpu, 0, 40, user=700, system=60)
    scene.node(0, 40, forks=300)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert not found.findings
    assert any(reason.cause == "crash-loop" for reason in found.ruled_out)


def deaths(scene: Scene, seconds: list[float], name: str, code: float) -> Scene:
    for number, second in enumerate(seconds):
        reported = {"container": hex_id(77 + number), "container_name": name, "image": "amazon/agent", "value": code}
        text = f"container {name} (image amazon/agent) ended with code {code:.0f}"
        scene.event(second, "container-die", text, "info", source="docker", **reported)
    return scene


def test_a_container_that_docker_saw_die_again_and_again_is_named(tmp_path: Path) -> None:
    scene = deaths(Scene(cores=4, seconds=60), [start + 1.2 for start in EVERY_TWO], "ecs-agent", 1)
    cgroups(scene, EVERY_TWO, 1.3, "/docker/{}")
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.severity, top.culprit.container) == ("crash-loop", "warning", "ecs-agent")
    assert "ecs-agent is started every 2.5 s, and fails each time" in top.summary
    assert [remedy.command for remedy in top.remedies] == [
        "docker logs --tail 100 ecs-agent",
        "exhume fix apply docker:ecs-agent",
    ]


def test_dockers_word_alone_is_enough(tmp_path: Path) -> None:
    scene = deaths(Scene(cores=4, seconds=60), EVERY_TWO, "ecs-agent", 137).without("samples", "cgroup_events")
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.severity, top.culprit.container) == ("crash-loop", "warning", "ecs-agent")


def test_containers_that_end_well_are_worth_knowing_at_most(tmp_path: Path) -> None:
    scene = deaths(Scene(cores=4, seconds=60), EVERY_TWO, "backup", 0)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is None or finding.severity == "info"


def unit_runs(scene: Scene, seconds: list[float], name: str, code: float, again: bool = True) -> Scene:
    for number, second in enumerate(seconds):
        reported = {"severity": "info", "source": "systemd", "comm": name}
        scene.event(second, "unit-started", f"unit {name} started", pid=3_000 + number, **reported)
        scene.event(second + 1.1, "unit-ended", f"unit {name} ended with code {code:.0f}", value=code, **reported)
        if again:
            text = f"unit {name} was started again by systemd ({number + 1} times by now)"
            scene.event(second + 1.3, "unit-restarted", text, value=float(number + 1), **reported)
    return scene


def test_a_unit_leads_the_container_that_it_starts(tmp_path: Path) -> None:
    scene = deaths(Scene(cores=4, seconds=60), [start + 1.0 for start in EVERY_TWO], "agent", 5)
    for number, start in enumerate(EVERY_TWO):
        known = {"source": "docker", "container": hex_id(77 + number), "container_name": "agent"}
        scene.event(start + 0.2, "container-start", "container agent started", "info", **known)
    unit_runs(scene, EVERY_TWO, "murk.service", 5)
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.entities[0].name) == ("crash-loop", "murk.service")
    assert ("container", "agent") in [(each.kind, each.name) for each in top.entities]
    assert {each.target for each in top.remedies} == {"murk.service"}


def test_a_unit_that_systemd_saw_fail_again_and_again_is_named(tmp_path: Path) -> None:
    """Without a single cgroup event: on many nodes a unit's cgroup stays while it is started again."""
    scene = unit_runs(Scene(cores=4, seconds=60), EVERY_TWO, "ecs.service", 5)
    for number, start in enumerate(EVERY_TWO):
        place = "/system.slice/ecs.service"
        scene.row("processes", start, pid=3_000 + number, ppid=1, comm="agent", cmdline="/agent --join", cgroup=place)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity) == ("crash-loop", "warning")
    assert "ecs.service is started every 2.5 s, and fails each time" in top.summary
    assert (top.culprit.comm, top.culprit.cgroup) == ("agent", "/system.slice/ecs.service")
    assert all(remedy.target == "ecs.service" for remedy in top.remedies)
    assert [remedy.id for remedy in top.remedies] == ["see-unit-log", "disable-unit", "slow-restarts"]
    assert any("of 14 runs that ended, 0 succeeded" in link.text for link in top.chain)


def test_a_unit_s_events_and_its_cgroups_are_one_loop(tmp_path: Path) -> None:
    scene = cgroups(Scene(cores=4, seconds=60), EVERY_TWO, 1.2, "/system.slice/ecs.service")
    alone = reported(judged_recording(scene.write(tmp_path / "alone"), scene.window))
    both = cgroups(Scene(cores=4, seconds=60), EVERY_TWO, 1.2, "/system.slice/ecs.service")
    unit_runs(both, EVERY_TWO, "ecs.service", 5)
    finding = reported(judged_recording(both.write(tmp_path / "both"), both.window))
    assert alone is not None
    assert finding is not None
    assert "fails each time" in finding.summary
    assert finding.confidence > alone.confidence


def test_a_unit_that_ends_well_and_is_started_again_by_systemd_is_a_loop(tmp_path: Path) -> None:
    scene = unit_runs(Scene(cores=4, seconds=60), EVERY_TWO, "poll.service", 0)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert finding.severity == "warning"
    assert "fails" not in finding.summary
    assert any("14 succeeded" in link.text for link in finding.chain)


def test_a_unit_that_is_called_when_needed_and_ends_well_is_no_loop(tmp_path: Path) -> None:
    scene = unit_runs(Scene(cores=4, seconds=60), EVERY_TWO, "backup.service", 0, again=False)
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


UID = "fbece6e8-0000-4000-8000-0123456789ab"
OTHER_UID = "0a1b2c3d-0000-4000-8000-0123456789ab"
POD = f"/kubepods/besteffort/pod{UID}"
EVERY_FIFTEEN = [4.0 + 15.0 * n for n in range(10)]


def pod_deaths(scene: Scene, seconds: list[float], name: str, uid: str, owner: str, *, first: int = 77) -> Scene:
    """The ends of a pod's container, as they are recorded of a CRI runtime; each attempt has an id of its own."""
    for number, second in enumerate(seconds):
        reported = {"container": hex_id(first + number), "container_name": name, "value": 1.0, "source": "cri"}
        reported |= {"pod": uid, "pod_name": name.rpartition("/")[0], "owner": owner}
        scene.event(second, "container-die", f"container {name} ended with code 1", "info", **reported)
    return scene


def test_a_pod_is_named_with_its_owner(tmp_path: Path) -> None:
    name = "prod/crashy-596c6549b5-gn4q9/worker"
    scene = pod_deaths(
        Scene(cores=4, seconds=160), [start + 1 for start in EVERY_FIFTEEN], name, UID, "deployment/crashy"
    )
    cgroups(scene, EVERY_FIFTEEN, 1.3, POD + "/{}")
    # What runs in it is a loop of that name to the sampler.
    inside(scene, EVERY_FIFTEEN, POD + "/{}", ["/bin/sh"])
    restarts(scene, [60.0, 90.0, 120.0], "sh")
    found = judged_recording(scene.write(tmp_path), scene.window)
    top = reported(found)
    assert top is not None and (top.severity, top.scope) == ("warning", "workload")
    assert top.summary == f"{name} of deployment prod/crashy is started every 15.0 s, and fails each time (exit code 1)"
    culprit = top.culprit
    assert (culprit.pod, culprit.pod_name, culprit.container_name) == (UID, "prod/crashy-596c6549b5-gn4q9", name)
    assert [(each.id, each.name) for each in top.entities if each.kind == "container"] == [(culprit.container, name)]
    assert [remedy.command for remedy in top.remedies] == [
        "kubectl -n prod logs --previous crashy-596c6549b5-gn4q9 -c worker",
        "kubectl -n prod scale deployment crashy --replicas=0",
    ]
    assert [remedy.read_only for remedy in top.remedies] == [True, False]
    assert found.verdict == "healthy"


def test_a_pod_without_events_is_named_by_its_processes(tmp_path: Path) -> None:
    scene = cgroups(Scene(cores=4, seconds=160), EVERY_FIFTEEN, 1.3, POD + "/{}")
    named = {"pod": UID, "pod_name": "monitoring/log-agent-qfttl", "container_name": "monitoring/log-agent-qfttl/agent"}
    # One of the attempts lived for long enough to be seen.
    place = {"cgroup": f"{POD}/{hex_id(80)}", "container": hex_id(80)}
    scene.row("processes", EVERY_FIFTEEN[3], pid=3_003, comm="sh", cmdline="/agent", **place, **named)
    # That a shell ends in it says less than the pod's name.
    restarts(scene, [60.0, 90.0, 120.0], "sh")
    top = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert top is not None and top.severity == "warning"
    assert top.summary.startswith("monitoring/log-agent-qfttl/agent is started every 15.0 s")
    assert (top.culprit.pod, top.culprit.pod_name) == (UID, "monitoring/log-agent-qfttl")
    assert top.remedies[0].command == "kubectl -n monitoring logs --previous log-agent-qfttl -c agent"
    assert "unknown-program" not in " ".join(doubts(top))


def test_loops_are_named_side_by_side(tmp_path: Path) -> None:
    scene = deaths(Scene(cores=4, seconds=160), [start + 1.2 for start in EVERY_TWO], "ecs-agent", 1)
    pod_deaths(scene, EVERY_FIFTEEN, "prod/crashy-596c6549b5-gn4q9/worker", UID, "deployment/crashy")
    pod_deaths(
        scene, EVERY_FIFTEEN[1:], "monitoring/log-agent-qfttl/agent", OTHER_UID, "daemonset/log-agent", first=177
    )
    top = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert top is not None
    also = [link for link in top.chain if link.code == "crash-loop.also"]
    named = {entity.name for entity in top.entities}
    assert len(also) == 2 and all(link.evidence for link in also)
    assert {"ecs-agent", "prod/crashy-596c6549b5-gn4q9/worker", "monitoring/log-agent-qfttl/agent"} <= named
    commands = [remedy.command for remedy in top.remedies]
    assert "kubectl -n monitoring logs --previous log-agent-qfttl -c agent" in commands
    assert "docker logs --tail 100 ecs-agent" in commands


def test_kubelets_pauses_grow_and_it_is_still_a_loop(tmp_path: Path) -> None:
    """10, 20, 40, 80, 160 and then 300 s: within three minutes there are few ends."""
    name, ends = "prod/crashy-596c6549b5-gn4q9/worker", [2.0, 302.0, 602.0, 902.0]
    scene = pod_deaths(Scene(cores=1, seconds=1000), ends, name, UID, "deployment/crashy")
    window = Window(at(940), at(1000))
    top = reported(judged_recording(scene.write(tmp_path), window))
    assert top is not None and (top.severity, top.culprit.pod) == ("info", UID)
    over = pod_deaths(Scene(cores=1, seconds=1000), [2.0, 12.0, 32.0, 72.0], name, UID, "deployment/crashy")
    assert reported(judged_recording(over.write(tmp_path / "over"), window)) is None


WORKER, AGENT, CACHE = "prod/crashy-596c6549b5-gn4q9/worker", "monitoring/log-agent-qfttl/agent", "prod/cache-0/cache"
# What kubelet makes of containers that end at once: it waits for 0, 10, 20 and 40 s.
BACK_OFF = [3.0, 5.0, 16.0, 38.0, 80.0]


def named(finding: Finding | None) -> set[str]:
    return {entity.name for entity in finding.entities} if finding is not None else set()


def test_loops_whose_ends_are_far_apart_are_named_wherever_the_focus_is(tmp_path: Path) -> None:
    """The pods start together, which stands out; by then each has ended twice."""
    scene = Scene(cores=2, seconds=110).core(1, 2, 8, system=980).stack(1, 2, 8, 0.95, "runc", 50, ["clone", "dup_mm"])
    pod_deaths(scene, BACK_OFF, WORKER, UID, "deployment/crashy")
    pod_deaths(scene, [end + 1.0 for end in BACK_OFF], AGENT, OTHER_UID, "daemonset/log-agent", first=177)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    assert found.focus[1] < at(16), "its end is before the third end of each"
    top = reported(found)
    assert {WORKER, AGENT} <= named(top)
    owners = {"prod/crashy-596c6549b5-gn4q9": "deployment/crashy", "monitoring/log-agent-qfttl": "daemonset/log-agent"}
    assert top is not None and top.scope == "workload" and owners[top.culprit.pod_name or ""] == top.culprit.owner
    # What was requested is that moment: what came later has no part in it.
    assert reported(judged_recording(recording, scene.window, at=at(5))) is None


@pytest.mark.parametrize(("until", "loops"), [(78, True), (320, True), (500, False)])
def test_the_next_pause_of_kubelet_may_be_twice_as_long(tmp_path: Path, until: int, loops: bool) -> None:
    ends = [end for end in (*BACK_OFF, 162.0) if end < until]
    scene = pod_deaths(Scene(cores=1, seconds=510), ends, WORKER, UID, "deployment/crashy")
    found = judged_recording(scene.write(tmp_path), Window(at(max(0, until - 20)), at(until)))
    assert (reported(found) is not None) is loops


def test_a_loop_that_memory_ends_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    scene, ends = Scene(cores=4, seconds=160), [start + 2.0 for start in EVERY_FIFTEEN]
    scene.node(0, 160, oom_kill=0)
    cgroup = f"/kubepods/burstable/pod{OTHER_UID}/{hex_id(77)}"
    for number, second in enumerate(ends):
        scene.node(int(second), int(second) + 1, oom_kill=1)
        line = f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={cgroup},"
        line += f"task_memcg={cgroup},task=cache,pid={700 + number},uid=0"
        scene.event(second - 0.1, "kernel-line", line, severity="info")
        text = f"Memory cgroup out of memory: Killed process {700 + number} (cache) total-vm:70000kB, anon-rss:60000kB"
        scene.event(second - 0.1, "oom-kill", text, comm="cache", pid=700 + number)
        ran_out = {"container": hex_id(77 + number), "container_name": CACHE, "source": "cri", "pod": OTHER_UID}
        scene.event(second, "container-oom", f"container {CACHE} ran out of memory", "warning", **ran_out)
        # It costs more than the other.
        scene.stack(1, int(second) - 1, int(second), 0.4, "cache", 700 + number, ["asm_exc_page_fault"])
        place = {"cgroup": cgroup, "container": hex_id(77 + number), "pod": OTHER_UID}
        scene.row("processes", second - 0.5, pid=700 + number, comm="cache", cmdline="/cache", **place)
    pod_deaths(scene, ends, CACHE, OTHER_UID, "statefulset/cache")
    pod_deaths(scene, EVERY_FIFTEEN, WORKER, UID, "deployment/crashy", first=177)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert "oom-thrash" in [finding.cause for finding in found.findings]
    top = reported(found)
    assert top is not None and top.culprit.pod == UID and {WORKER, CACHE} <= named(top)


def test_an_end_without_a_code_is_no_success(tmp_path: Path) -> None:
    """kubelet removes old attempts: of some the runtime can't say any more how they ended."""
    scene = pod_deaths(Scene(cores=1, seconds=160), EVERY_FIFTEEN[1:], WORKER, UID, "deployment/crashy")
    gone = {"container": hex_id(60), "container_name": WORKER, "source": "cri", "pod": UID}
    gone |= {"pod_name": WORKER.rpartition("/")[0], "owner": "deployment/crashy"}
    scene.event(EVERY_FIFTEEN[0], "container-die", f"container {WORKER} ended", "info", **gone)
    top = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert top is not None and top.severity == "warning" and "fails each time" in top.summary


def test_a_service_of_a_service_manager_that_fails_each_time_is_a_warning_whatever_it_costs(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=60)
    for number, second in enumerate((12.0, 22.0, 32.0)):
        more = {"comm": "python3", "pid": 3_000 + number, "value": 4.0, "exit_code": 3}
        scene.event(second, "restart", "python3 was started 4 times", "warning", source="recorder", **more)
        command = "python3 /opt/agent/main.py --endpoint tcp://gone:1"
        scene.row("processes", second - 1, pid=3_000 + number, ppid=40, comm="python3", cmdline=command)
    scene.row("processes", 5.0, pid=40, ppid=30, comm="runsv", cmdline="runsv agent")
    # Another process of that name, which is fine.
    scene.row("processes", 40.0, pid=77, ppid=1, comm="python3", cmdline="python3 /opt/web/server.py")
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None and finding.severity == "warning"
    assert finding.culprit.comm == "python3" and finding.culprit.pid in range(3_000, 3_003)
    assert finding.culprit.cmdline is not None and "main.py" in finding.culprit.cmdline
    assert "main.py" in finding.summary and "exit code 3" in finding.summary


Ends = list[tuple[float, int, float]]


def polls(scene: Scene, ends: Ends, above: int = 1, *, manager: str = "sh", code: int = 22) -> Scene:
    """One command that fails each time: when, whose child it was, and how often it had ended since the last time."""
    for number, (second, parent, times) in enumerate(ends):
        more = {"comm": "curl", "pid": 3_000 + number, "value": times, "exit_code": code}
        scene.event(second, "restart", "curl was started 4 times", "warning", source="recorder", **more)
        command = "curl -fsS http://127.0.0.1:8080/healthz"
        scene.row("processes", second - 1, pid=3_000 + number, ppid=parent, comm="curl", cmdline=command)
        scene.row("processes", second - 1, pid=parent, ppid=above, comm=manager, cmdline=f"{manager} step-{parent}")
    scene.row("processes", 5.0, pid=above, ppid=1, comm=manager, cmdline=manager)
    return scene


STEADY = [12.0, 20.0, 28.0, 36.0]
ONE_PARENT = [(at, 40, 4.0) for at in STEADY]


@pytest.mark.parametrize(
    ("ends", "severity"),
    [
        pytest.param(ONE_PARENT, "warning", id="one-parent"),
        pytest.param([(at, 40 + place, 4.0) for place, at in enumerate(STEADY)], "warning", id="a-wrapper-each"),
        pytest.param([(at, 40 + place % 2, 4.0) for place, at in enumerate(STEADY)], "info", id="two-services"),
        pytest.param([(at, 1, 4.0) for at in STEADY], "info", id="left-to-init"),
        pytest.param([(12.0, 40, 4.0), (17.0, 40, 20.0), (36.0, 40, 3.0), (41.0, 40, 1.0)], "info", id="irregular"),
        pytest.param([(12.0, 40, 4.0), (20.0, 40, 4.0)], "info", id="too-short"),
    ],
)
def test_a_service_manager_has_to_start_the_same_thing_at_a_pace(tmp_path: Path, ends: Ends, severity: str) -> None:
    scene = polls(Scene(cores=96, seconds=60), ends, above=30, manager="runsv")
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None and finding.severity == severity


@pytest.mark.parametrize("manager", ["sh", "bash", "python3", "node"])
def test_a_script_that_asks_and_gets_the_same_answer_is_worth_knowing_at_most(tmp_path: Path, manager: str) -> None:
    """However regular it is: the exit code of a health check that costs next to nothing is an answer."""
    scene = polls(Scene(cores=4, seconds=60), ONE_PARENT, above=30, manager=manager)
    for place, second in enumerate(STEADY):
        scene.stack(2, int(second) - 1, int(second), 0.02, "curl", 3_000 + place, IMPORT)
    found = judged_recording(scene.write(tmp_path), scene.window)
    finding = reported(found)
    assert finding is not None and finding.severity == "info"
    assert found.verdict == "healthy"


@pytest.mark.parametrize(("code", "severity"), [(-11, "warning"), (-6, "warning"), (127, "warning"), (-15, "info")])
def test_a_program_that_a_fault_ends_each_time_answers_no_question(tmp_path: Path, code: int, severity: str) -> None:
    """Segmentation fault, abort, not found; a signal to terminate may come from its own script."""
    scene = polls(Scene(cores=4, seconds=60), ONE_PARENT, above=30, code=code)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None and finding.severity == severity


def test_what_others_of_its_name_burn_is_not_its_cost(tmp_path: Path) -> None:
    ends = [(at, 40 + place % 2, 4.0) for place, at in enumerate(STEADY)]
    scene = polls(Scene(cores=4, seconds=60), ends, above=30)
    scene.row("processes", 5.0, pid=77, ppid=1, comm="curl", cmdline="curl -T dump.sql sftp://backup/")
    scene.stack(2, 0, 60, 0.5, "curl", 77, IMPORT).core(2, 0, 60, user=510)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None and finding.severity == "info"
    own = polls(Scene(cores=4, seconds=60), ends, above=30)
    for place, second in enumerate(STEADY):
        own.stack(2, int(second) - 3, int(second), 0.5, "curl", 3_000 + place, IMPORT)
    finding = reported(judged_recording(own.write(tmp_path / "own"), own.window))
    assert finding is not None and finding.severity == "warning"


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("form", [pytest.param("subshell", marks=pytest.mark.long), "script"])
def test_below_a_shell_loop_what_fails_is_named_in_a_real_recording(tmp_path: Path, form: str) -> None:
    name = f"agent-{tmp_path.name[-6:].strip('_0')}"[:15]
    agent = tmp_path / name
    agent.write_text("#!/bin/sh\nsleep 0.5\nexit 7\n")
    wrapper = tmp_path / "run"
    wrapper.write_text(f"#!/bin/sh\n{agent} --once\n")
    for each in (agent, wrapper):
        each.chmod(0o755)
    what = f"( {agent} --once )" if form == "subshell" else str(wrapper)
    began = time.time_ns()
    with recorder(tmp_path / "recording"):
        loop = subprocess.Popen(["sh", "-c", f"while :; do {what}; sleep 0.8; done"])
        time.sleep(25)
        loop.kill()
        loop.wait()
    recording = Recording.open(tmp_path / "recording")
    events = recording.events(Window(began, time.time_ns()), ["restart"])
    own = [event for event in events if event.comm == name]
    assert own and {event.exit_code for event in own} == {7}
    assert all(f"({loop.pid})" in event.text for event in own)
    case = Case(recording, Window(began, time.time_ns()), Window(began, began))
    assert any(known.cmdline and "--once" in known.cmdline and known.comm == name for known in case.processes.values())
