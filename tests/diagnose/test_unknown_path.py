"""A path of the kernel that no signature knows is still named: by function, process and core."""

from pathlib import Path

from scenes import Scene, at

from exhume.diagnose.engine import diagnose

PATH = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "zorp_ioctl", "zorp_scan_table", "zorp_hash"]


def test_an_unknown_path_on_one_core_of_many_is_named(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=40).core(39, 20, 28, system=990).stack(39, 20, 28, 0.98, "zorpd", 4711, PATH)
    for cpu in range(96):
        if cpu != 39:
            scene.core(cpu, 0, 40, user=300)
    found = diagnose(scene.write(tmp_path), scene.window)
    top = found.findings[0]
    assert (top.cause, top.culprit.cpu, top.culprit.pid) == ("unknown-kernel-path", 39, 4711)
    assert top.culprit.function == "zorp_hash"
    assert found.verdict == "starved"
    assert at(19) <= found.focus[0] and found.focus[1] <= at(30)


def test_a_quiet_node_is_healthy(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40)
    for cpu in range(4):
        scene.core(cpu, 0, 40, user=700, system=40)
    found = diagnose(scene.write(tmp_path), scene.window)
    assert found.verdict == "healthy"
    assert not found.findings


def test_a_little_of_it_on_each_of_many_cores_is_nothing(tmp_path: Path) -> None:
    scene = Scene(cores=24, seconds=40)
    for cpu in range(24):
        scene.core(cpu, 0, 40, user=800, system=100).stack(cpu, 0, 40, 0.1, "zorpd", 100 + cpu, PATH)
        scene.stack(cpu, 0, 40, 0.6, "zorpd", 100 + cpu, ["app:work"])
    assert not diagnose(scene.write(tmp_path), scene.window).findings
