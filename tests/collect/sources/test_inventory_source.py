"""The source of the inventory: what it records when, and that a tick never waits for it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.collect.fake_node import FakeNode
from tests.collect.inventory.node_tree import NodeTree

from exhume.collect.sources import inventory as module
from exhume.collect.sources.inventory import FIRST_AFTER_S, SHARE, InventorySource, node_root
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.inventory import SECTIONS
from exhume.model.inventory.codec import missing_of, section_of
from exhume.procfs.host import Host

LONGEST_S = 60.0


def tick(second: float) -> Tick:
    end = int((1000 + second) * NANOS)
    return Tick(int(second), end - NANOS, end, 1_700_000_000 * NANOS + end)


class Recorder:
    """Reads a source second by second; only the children take real time."""

    def __init__(self, tree: NodeTree) -> None:
        tree.write("/proc/sys/kernel/osrelease", "6.1.0\n")
        tree.write("/etc/os-release", "ID=debian\n")
        self.source = InventorySource(tree.root.host)
        self.second = 0
        self.longest_s = 0.0

    def step(self) -> list[tuple[str, str | None, str | None]]:
        began = time.thread_time()
        rows = self.source.read(tick(self.second)).get("inventory", {})
        self.longest_s = max(self.longest_s, time.thread_time() - began)
        self.second += 1
        return list(zip(*(rows[name] for name in ("section", "content", "missing")), strict=True)) if rows else []

    def run(self, seconds: int) -> dict[str, tuple[str | None, str | None]]:
        """All rows of so many seconds; a child that was started is waited for."""
        found = {}
        for _ in range(seconds):
            deadline = time.monotonic() + LONGEST_S
            while self.source._process is not None and self.source._process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            found |= {section: (content, missing) for section, content, missing in self.step()}
        return found


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path / "node")


@pytest.fixture
def recorder(tree: NodeTree):
    made = Recorder(tree)
    yield made
    made.source.close()


def test_all_sections_some_seconds_after_the_start(recorder: Recorder):
    assert not recorder.run(FIRST_AFTER_S)
    found = recorder.run(3)
    assert set(found) == set(SECTIONS) - {"labels"}
    assert section_of("os", found["os"][0]).id == "debian"
    content, missing = found["packages"]
    assert content is None and missing_of(missing)[0].reason == "absent"
    assert recorder.source.take_losses() == []


def test_only_what_changed_is_recorded_again(recorder: Recorder, tree: NodeTree):
    recorder.run(FIRST_AFTER_S + 3)
    assert not recorder.run(400)
    tree.write("/etc/os-release", "ID=ubuntu\n")
    found = recorder.run(400)
    # The image may be named in the same file, but there is none.
    assert set(found) == {"os"} and section_of("os", found["os"][0]).id == "ubuntu"


def test_all_of_it_once_an_hour(recorder: Recorder):
    first = recorder.run(FIRST_AFTER_S + 3)
    found = recorder.run(3600)
    assert set(found) == set(first)


def test_a_change_waits_until_it_may_be_spent_for(recorder: Recorder, tree: NodeTree):
    recorder.run(FIRST_AFTER_S + 3)
    recorder.source._spent_s = 2.0
    tree.write("/etc/os-release", "ID=ubuntu\n")
    # What was spent beyond a second is made up for at the share of a core that it may take.
    waits = int(1.0 / SHARE)
    assert "os" not in {section for section, *_ in _changes(recorder, waits - 600)}
    assert "ubuntu" in str(dict(_changes(recorder, 1200))["os"])


def _changes(recorder: Recorder, seconds: int):
    """Rows that are no repetition of the whole."""
    for _ in range(seconds):
        rows = recorder.run(1)
        if len(rows) < 5:
            yield from rows.items()


def test_a_child_that_fails_is_a_loss_and_is_tried_again(recorder: Recorder, monkeypatch):
    monkeypatch.setattr(module, "isolated_python", lambda *_: ["/bin/false"])
    assert not recorder.run(FIRST_AFTER_S + 3)
    (loss,) = recorder.source.take_losses()
    assert (loss.source, loss.kind) == ("inventory", "inventory-failed")
    monkeypatch.undo()
    assert set(recorder.run(400)) == set(SECTIONS) - {"labels"}


def test_a_child_that_can_not_be_started_is_a_loss(recorder: Recorder, monkeypatch):
    monkeypatch.setattr(module, "isolated_python", lambda *_: ["/no/such/program"])
    recorder.run(FIRST_AFTER_S + 3)
    assert [loss.kind for loss in recorder.source.take_losses()] == ["inventory-failed"]


def test_a_child_that_hangs_is_not_waited_for_and_ends_with_the_source(recorder: Recorder, monkeypatch):
    monkeypatch.setattr(module, "isolated_python", lambda *_: ["/bin/sleep", "1000"])
    for _ in range(FIRST_AFTER_S + 5):
        recorder.step()
    process = recorder.source._process
    assert process is not None and process.poll() is None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 10
    recorder.source.close()
    assert process.poll() is not None


def test_one_that_takes_too_long_is_ended(recorder: Recorder, monkeypatch):
    monkeypatch.setattr(module, "isolated_python", lambda *_: ["/bin/sleep", "1000"])
    for _ in range(FIRST_AFTER_S + 2):
        recorder.step()
    recorder.second += 1850
    recorder.step()
    recorder.run(2)
    assert recorder.source._process is None
    assert [loss.kind for loss in recorder.source.take_losses()] == ["inventory-failed"]


@pytest.mark.parametrize(
    "output",
    [
        *("\\xff\\n", "os\\n", "os\\ta\\tb\\n", "nope\\ta\\tb\\t1\\t1\\nx", "\\t\\t\\t\\t\\n", "x" * 9999),
        *("os\\ta\\tb\\t5\\t9\\nshort", "os\\ta\\tb\\t-1\\t1\\nx", "os\\ta\\tb\\t99999999999\\t1\\nx"),
    ],
)
def test_any_output_of_a_child(recorder: Recorder, monkeypatch, output):
    monkeypatch.setattr(module, "isolated_python", lambda *_: ["/bin/sh", "-c", f"printf '{output}'"])
    assert not recorder.run(FIRST_AFTER_S + 3)


def test_a_large_inventory_is_recorded_over_several_ticks(recorder: Recorder, tree: NodeTree, monkeypatch):
    """Its rows are in memory several times until they are written."""
    monkeypatch.setattr(module, "_BYTES_A_TICK", 20_000)
    packages = "".join(f"Package: p{i}\nStatus: install ok installed\nVersion: {i}\n\n" for i in range(2000))
    tree.write("/var/lib/dpkg/status", packages)
    recorder.run(FIRST_AFTER_S + 1)
    sizes, found = [], {}
    for _ in range(len(SECTIONS)):
        rows = recorder.run(1)
        found |= rows
        sizes.append(sum(len(content or "") for content, _ in rows.values()))
    assert set(found) == set(SECTIONS) - {"labels"}
    assert len(section_of("packages", found["packages"][0]).versions) == 2000
    # One that is larger alone has a tick for itself.
    assert sorted(sizes)[-1] == len(found["packages"][0]) > 20_000 >= sorted(sizes)[-2]
    assert sum(1 for size in sizes if size) >= 2
    again = recorder.run(3600)
    assert set(again) == set(found)


def test_the_recorder_has_no_classes_of_inventories_in_its_memory():
    code = "import sys, exhume.cli.recorder, exhume.collect.source_set; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name for name in done.stdout.split() if name.startswith(("exhume.model.inventory", "exhume.fleet"))]
    assert loaded == [] and "exhume.collect.sources.inventory" in done.stdout


def test_a_node_that_hides_everything(tmp_path: Path):
    with pytest.raises(SourceUnavailable):
        InventorySource(FakeNode(tmp_path / "node").host)


def test_the_root_is_that_of_the_first_process():
    assert node_root(Host()).path in (Path("/"), Path("/proc/1/root"))


@pytest.mark.root
def test_this_node():
    source = InventorySource(Host())
    try:
        source.read(tick(0))
        source.read(tick(FIRST_AFTER_S))
        assert source._process is not None
        source._process.wait(LONGEST_S)
        rows = source.read(tick(FIRST_AFTER_S + 1))["inventory"]
    finally:
        source.close()
    contents = dict(zip(rows["section"], rows["content"], strict=True))
    assert section_of("kernel", contents["kernel"]).release == os.uname().release
    for section, content, missing in zip(rows["section"], rows["content"], rows["missing"], strict=True):
        assert content is not None or json.loads(missing), section
