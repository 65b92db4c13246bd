"""Thousands of live cgroups, and an agent that walks them."""

from pathlib import Path

from tests.diagnose.codes import reason
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding, Severity

SYSCALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64"]
OPEN = [*SYSCALL, "do_sys_openat2", "path_openat", "lookup_fast", "kernfs_dop_revalidate"]
READ = [*SYSCALL, "vfs_read", "kernfs_fop_read_iter", "seq_read_iter", "cgroup_seqfile_show", "memcg_stat_format"]
SYSFS = [*SYSCALL, "vfs_read", "kernfs_fop_read_iter", "seq_read_iter", "sysfs_kf_seq_show", "dev_attr_show"]
PARSE = ["agent:parse"]


def counted(scene: Scene, visible: int, dying: int = 20) -> Scene:
    for second in range(0, scene.seconds, 10):
        counts = {"kernel": visible + dying, "visible": visible, "dying": dying}
        scene.row("cgroups", second, hierarchy="unified", parent="", **counts)
    return scene


def walked(scene: Scene, cpu: int = 1) -> Scene:
    scene.core(cpu, 20, 30, system=650, user=330)
    for share, frames in ((0.3, OPEN), (0.34, READ), (0.33, PARSE)):
        scene.stack(cpu, 20, 30, share, "agent", 40, frames)
    return scene


def examined(scene: Scene, directory: Path) -> tuple[Diagnosis, Finding | None]:
    recording = scene.write(directory)
    answer = judged_recording(recording, scene.window)
    return answer, next((each for each in answer.findings if each.cause == "cgroup-excess"), None)


def test_the_agent_that_walks_them_is_named(tmp_path: Path) -> None:
    answer, finding = examined(counted(walked(Scene()), 14_000), tmp_path)
    assert finding is not None and answer.findings[0] is finding
    assert (finding.culprit.cpu, finding.culprit.comm, finding.culprit.pid) == (1, "agent", 40)
    assert finding.severity is Severity.WARNING and finding.confidence >= 0.85
    assert "14,000 live cgroups" in finding.summary


def test_one_core_of_96(tmp_path: Path) -> None:
    scene = counted(walked(Scene(cores=96, seconds=40), cpu=64), 14_000)
    for cpu in range(96):
        if cpu != 64:
            scene.core(cpu, 0, 40, user=500)
    answer, finding = examined(scene, tmp_path)
    assert finding is not None and answer.findings[0] is finding and finding.culprit.cpu == 64


def test_few_cgroups_are_no_excess(tmp_path: Path) -> None:
    answer, finding = examined(counted(walked(Scene()), 900), tmp_path)
    assert finding is None
    assert reason(answer, "cgroup-excess") == "cgroup-excess.usual"


def test_without_live_counts_a_walk_has_less_confidence(tmp_path: Path) -> None:
    _, sure = examined(counted(walked(Scene()), 14_000), tmp_path / "counted")
    scene, idle = walked(Scene()), Scene().stack(0, 0, 40, 0.1, "server", 3, PARSE)
    for each in (scene, idle):
        for second in range(0, 40, 10):
            each.row("cgroups", second, hierarchy="memory", parent="", kernel=14_000)
            each.row("cgroups", second, hierarchy="unified", parent="", kernel=1, visible=1, dying=0)
    _, unsure = examined(scene, tmp_path / "uncounted")
    assert sure is not None and unsure is not None and unsure.confidence <= sure.confidence - 0.1
    assert examined(idle, tmp_path / "idle")[1] is None


def test_reading_attributes_of_devices_is_something_else(tmp_path: Path) -> None:
    scene = counted(Scene(), 14_000).core(1, 20, 30, system=950).stack(1, 20, 30, 0.9, "agent", 40, SYSFS)
    _, finding = examined(scene, tmp_path)
    assert finding is not None and finding.severity is Severity.INFO and finding.culprit.cpu is None


def test_many_cgroups_without_a_walk_are_info(tmp_path: Path) -> None:
    _, finding = examined(counted(Scene().stack(0, 0, 40, 0.1, "server", 3, PARSE), 14_000), tmp_path)
    assert finding is not None and finding.severity is Severity.INFO and finding.confidence >= 0.7


def test_without_stacks_they_are_worth_knowing_and_less_sure(tmp_path: Path) -> None:
    _, finding = examined(counted(walked(Scene()).without("samples", "stacks", "frames"), 14_000), tmp_path)
    assert finding is not None and finding.severity is Severity.INFO
    assert finding.confidence <= 0.6


def test_a_busy_healthy_node_has_none(tmp_path: Path) -> None:
    scene = counted(Scene(), 400)
    for cpu in range(4):
        scene.core(cpu, 0, 40, user=700, system=100).stack(cpu, 0, 40, 0.1, "agent", 40, READ)
    answer, finding = examined(scene, tmp_path)
    assert finding is None and answer.verdict == "healthy"


LOOKUP = [*SYSCALL, "__do_sys_newfstatat", "vfs_fstatat", "vfs_statx", "filename_lookup", "path_lookupat"]
STAT = [*LOOKUP, "link_path_walk", "lookup_fast", "kernfs_dop_revalidate"]
STAT_DISK = [*LOOKUP, "link_path_walk", "walk_component", "ext4_lookup"]
EPOLL = [*SYSCALL, "__x64_sys_epoll_ctl", "do_epoll_ctl", "ep_insert"]
COMPUTE = ["kubelet:encoding/json.Unmarshal"]


def agent(scene: Scene, *parts: tuple[float, list[str]], scale: float = 1.0) -> Scene:
    """A process whose threads run now on this core, now on that one."""
    for second in range(20, 100):
        cpu = second % scene.cores
        scene.core(cpu, second, second + 1, system=200, user=150)
        for share, frames in parts:
            scene.stack(cpu, second, second + 1, share * scale, "kubelet", 40, frames)
    return scene


# As cAdvisor was measured: a third in files, a tenth of that in functions of cgroups, the rest is its own.
CADVISOR = ((0.08, LOOKUP), (0.03, STAT), (0.03, EPOLL), (0.21, COMPUTE))


def test_an_agent_of_many_threads_is_named_though_it_has_no_core_of_its_own(tmp_path: Path) -> None:
    answer, finding = examined(counted(agent(Scene(cores=2, seconds=100), *CADVISOR), 6_103), tmp_path)
    assert finding is not None and answer.findings[0] is finding
    assert (finding.culprit.comm, finding.culprit.pid, finding.culprit.cpu) == ("kubelet", 40, None)
    assert finding.severity is Severity.WARNING and finding.confidence >= 0.75
    assert finding.chain[0].code == "cgroup-excess.agent"


def test_a_little_of_it_is_no_finding_about_the_agent(tmp_path: Path) -> None:
    for name, scene in {
        "light": agent(Scene(cores=2, seconds=100), *CADVISOR, scale=0.2),
        "other files": agent(Scene(cores=2, seconds=100), (0.1, STAT_DISK), *CADVISOR),
        "busy elsewhere": agent(Scene(cores=2, seconds=100), (0.6, COMPUTE), *CADVISOR[:2]),
    }.items():
        _, finding = examined(counted(scene, 6_103), tmp_path / name)
        assert finding is not None and finding.severity is Severity.INFO, name
        assert finding.culprit.pid is None, name
