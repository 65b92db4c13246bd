"""What a finding quotes can be found again in the store, by its description alone."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.diagnose.evidence_check import evidence_in, recompute, same, untrue
from tests.diagnose.scenes import Scene, at
from tests.synthetic import synthetic_recording

from exhume.diagnose.engine import diagnose
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence
from exhume.store.read.recording import Recording

PATH = ["do_syscall_64", "vfs_read", "zorp_scan_table", "zorp_hash"]


def starved(cores: int = 16) -> Scene:
    """A core in the kernel while its network queue, one of two devices' fifth, stands still."""
    scene = Scene(cores=cores, seconds=60).core(3, 30, 37, system=990, wait_ns=3 * NANOS)
    scene.stack(3, 30, 37, 0.97, "kubelet", 4711, PATH).stack(3, 0, 30, 0.05, "kubelet", 4711, PATH[:2])
    for second in range(60):
        for device, cpu in (("eth0", 3), ("eth1", 5)):
            names = {"irq": device, "name": f"{device}-Tx-Rx-5", "device": device, "queue": 5}
            scene.row("interrupts", second, cpu=cpu, count=100 + cpu, **names)
        scene.row("interrupts", second, irq="9", name="eth1-Tx-Rx-5", cpu=3, count=1, device="eth1", queue=5)
    scene.row("threads", 36, tid=9, comm="ksoftirqd/3", cpu=3, run_ns=0, wait_ns=6 * NANOS)
    return scene.event(36.6, "nic-tx-paused", "eth0: TX q 5 is paused for too long", device="eth0", queue=5)


def test_all_that_is_quoted_of_a_starved_core_is_recorded(tmp_path: Path) -> None:
    scene = starved()
    recording = scene.write(tmp_path)
    found = diagnose(recording, scene.window)
    tables = {evidence.table for evidence in evidence_in(found)}
    assert {"events", "interrupts", "cpu", "threads", "samples"} <= tables
    assert untrue(recording, found) == []


@pytest.mark.slow
def test_all_that_is_quoted_of_a_large_node_is_recorded(tmp_path_factory: pytest.TempPathFactory) -> None:
    planted = synthetic_recording(tmp_path_factory, cores=8, minutes=4, seed=7)
    recording = Recording.open(planted.directory)
    span = recording.span()
    assert span is not None
    found = diagnose(recording, span)
    assert found.findings[0].culprit.cpu == planted.incident.cpu
    assert untrue(recording, found) == []


def test_without_stacks_what_is_left_is_true_as_well(tmp_path: Path) -> None:
    scene = starved().without("samples")
    recording = scene.write(tmp_path)
    found = diagnose(recording, scene.window)
    assert evidence_in(found)
    assert untrue(recording, found) == []


@pytest.mark.parametrize(
    ("column", "how", "value"),
    [("system", "max", 990), ("system", "min", 0), ("system", "sum", 6930), ("system", "mean", 115.5)],
)
def test_columns_are_taken_together(tmp_path: Path, column: str, how: str, value: float) -> None:
    recording = starved().write(tmp_path)
    assert recompute(recording, Evidence("cpu", column, how, value, at(0), at(60), 3)) == value


def test_a_false_value_is_noticed(tmp_path: Path) -> None:
    scene = starved()
    recording = scene.write(tmp_path)
    found = diagnose(recording, scene.window)
    for evidence in evidence_in(found):
        other = "another text" if isinstance(evidence.value, str) else evidence.value * 1.1 + 1
        assert not same(recompute(recording, replace(evidence, value=other)), other)
