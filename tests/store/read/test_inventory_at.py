"""The inventory of a recording at a moment: the newest row of each section, also in a bundle that is cut behind it."""

import pytest
from tests.store.store_rows import WALL, cpu_rows, recorder, tick_at

from exhume.model.clock import NANOS, Window
from exhume.model.inventory import Kernel, Missing, OsRelease, Reason
from exhume.model.inventory.codec import missing_text, section_text
from exhume.store.read.inventory import inventory_at
from exhume.store.read.recording import Recording
from exhume.store.write.bundle import write_bundle

CLOSED = Missing("packages", Reason.PERMISSION, "run as root")


def row(tick, section, value=None, missing=None):
    content = None if value is None else section_text(section, value)
    return {"time": [tick.start], "section": [section], "content": [content], "missing": [missing]}


@pytest.fixture
def recording(tmp_path):
    writer = recorder(tmp_path / "recording")
    for index in range(200):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick, system=1))
        if index == 5:
            writer.append("inventory", row(tick, "os", OsRelease("debian", "12")))
            writer.append("inventory", row(tick, "kernel", Kernel("6.1")))
            writer.append("inventory", row(tick, "packages", missing=missing_text((CLOSED,))))
        if index == 130:
            writer.append("inventory", row(tick, "kernel", Kernel("6.6")))
        if index == 140:
            # Of a later version, and damaged.
            columns = {"time": [tick.start] * 2, "section": ["colour", "sysctls"], "content": ["5", "{nope"]}
            writer.append("inventory", columns | {"missing": [None, None]})
        writer.commit(tick)
    writer.close()
    return Recording.open(tmp_path / "recording")


def test_the_newest_row_of_each_section(recording):
    found = inventory_at(recording)
    assert found.kernel == Kernel("6.6") and found.os == OsRelease("debian", "12")
    assert found.node == recording.facts.node and found.taken_at > WALL
    assert CLOSED in found.missing and found.packages is None
    assert [each.section for each in found.missing if each.section in ("units", "sysctls")] == ["sysctls", "units"]


def test_an_earlier_moment(recording):
    assert inventory_at(recording, WALL + 100 * NANOS).kernel == Kernel("6.1")
    assert inventory_at(recording, WALL + 2 * NANOS) is None


def test_a_bundle_has_the_inventory_of_its_time(recording, tmp_path):
    path = tmp_path / "incident.exhume.zip"
    write_bundle(path, recording, Window(WALL + 125 * NANOS, WALL + 135 * NANOS), {})
    packed = Recording.open(path)
    try:
        sections = packed.read("inventory").column("section").to_pylist()
        assert sorted(sections) == ["kernel", "kernel", "os", "packages"]
        found = inventory_at(packed)
        assert found.kernel == Kernel("6.6") and found.os == OsRelease("debian", "12") and CLOSED in found.missing
        span = packed.span()
        assert span.since >= WALL + 124 * NANOS and not packed.damaged
    finally:
        packed.close()


def test_a_bundle_of_a_time_before_any_inventory_has_none(recording, tmp_path):
    path = tmp_path / "early.exhume.zip"
    write_bundle(path, recording, Window(WALL, WALL + 3 * NANOS), {})
    packed = Recording.open(path)
    assert inventory_at(packed) is None
    packed.close()
