"""A cached recording gives what one that doesn't gives, whatever was asked for before."""

import random
from pathlib import Path

import pytest
from tests.diagnose.scenes import Scene, at
from tests.parts import sampled

from exhume.model.clock import NANOS, Window
from exhume.store.read import cached as cached_module
from exhume.store.read.cached import CachedRecording
from exhume.store.read.recording import Recording


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Recording:
    scene = Scene(cores=3, seconds=90)
    for second in range(20, 70):
        scene.core(1, second, second + 1, system=second)
        scene.event(second + 0.25, "kernel-line", f"line {second}", severity="info")
    return scene.write(tmp_path_factory.mktemp("scene"))


def asked() -> list[tuple[str, Window]]:
    dice = random.Random(11)
    edges = [(dice.randrange(-20, 100), dice.randrange(1, 50)) for _ in range(60)]
    return [(dice.choice(["cpu", "node", "events"]), Window(at(a), at(a + length))) for a, length in edges]


@pytest.mark.parametrize("most_rows", [20, 1_000_000])
@pytest.mark.parametrize("near", sampled([5 * NANOS, 0, 900 * NANOS]))
def test_any_windows_in_any_order(recording, monkeypatch, most_rows, near):
    monkeypatch.setattr(cached_module, "MOST_ROWS", most_rows)
    monkeypatch.setattr(cached_module, "NEAR_NS", near)
    cached = CachedRecording(recording)
    for table, window in asked():
        assert cached.read(table, window).to_pylist() == recording.read(table, window).to_pylist()
        assert cached.events(window) == recording.events(window)


def test_what_is_held_is_not_read_again(tmp_path: Path):
    recording = Scene(cores=1, seconds=30).write(tmp_path)
    cached = CachedRecording(recording)
    whole = cached.read("cpu", Window(at(0), at(30)))
    for file in tmp_path.rglob("cpu.parquet"):
        file.unlink()
    assert cached.read("cpu", Window(at(5), at(9))).num_rows == 4
    assert whole.num_rows == 30
    assert recording.read("cpu", Window(at(5), at(9))).num_rows == 0
