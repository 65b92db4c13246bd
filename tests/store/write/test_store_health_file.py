"""The file that probes read follows the recorder's ticks."""

import stat

import pytest

from exhume.model.clock import NANOS, Tick
from exhume.model.facts import MissingSource, RecordingFacts
from exhume.model.ownership import Access
from exhume.model.tables import Losses
from exhume.store.format.names import LIVE_DIRECTORY
from exhume.store.read.health import HEALTH_BYTES, read_health
from exhume.store.write.health import HealthFile

MISSING = [MissingSource("kernel-log", "no /dev/kmsg", "run as root")]
FACTS = RecordingFacts("n", "b" * 32, 2, "6.8", "x86_64", "cpu-clock", 97, MISSING, "0.1.0")


@pytest.fixture
def recording(tmp_path):
    (tmp_path / LIVE_DIRECTORY).mkdir()
    return tmp_path


def observe(file: HealthFile, index: int, *losses: Losses, user_us: int = 10_000, rate_hz: int = 97) -> None:
    start = index * NANOS
    own = {"user_us": [user_us], "system_us": [0], "rate_hz": [rate_hz], "rss_kb": [1000]}
    file.observe(Tick(index, start, start + NANOS, start + 5 * NANOS), {"self": [own]}, losses)


def loss(kind: str, count: int) -> Losses:
    return Losses(0, "recorder", kind, count, "")


def test_each_tick_is_in_the_file(recording):
    file = HealthFile(recording, FACTS, Access())
    for index in range(10, 13):
        observe(file, index, user_us=20_000, rate_hz=48)
    file.close()
    found = read_health(recording)
    assert (found.began, found.tick, found.wall) == (10 * NANOS, 13 * NANOS, 17 * NANOS)
    assert (found.rate_hz, found.requested_rate_hz, found.rss_bytes) == (48, 97, 1_024_000)
    assert found.cpu == pytest.approx(0.02)
    assert list(found.sources_missing) == MISSING


def test_losses_count_for_five_minutes(recording):
    file = HealthFile(recording, FACTS, Access())
    observe(file, 0, loss("late-tick", 2), loss("rate-lowered", 48))
    observe(file, 100, loss("late-tick", 3))
    assert read_health(recording).losses == {"late-tick": 5, "rate-lowered": 1}
    observe(file, 350)
    assert read_health(recording).losses == {"late-tick": 3}
    observe(file, 500)
    assert read_health(recording).losses == {}
    file.close()


def test_a_shorter_content_leaves_nothing_of_a_longer_one(recording):
    file = HealthFile(recording, FACTS, Access())
    path = recording / LIVE_DIRECTORY / "health.json"
    for index, kinds in ((0, 200), (400, 0), (800, 200), (1200, 1)):
        observe(file, index, *(loss(f"kind-{number}", 1) for number in range(kinds)))
        assert len(read_health(recording).losses) == kinds
        assert path.read_bytes().split(b"\n", 2)[2].strip(b" ") == b"", "a line, its checksum, and blanks"
    file.close()
    assert path.stat().st_size == HEALTH_BYTES


def test_it_is_written_in_place_and_private(recording):
    file = HealthFile(recording, FACTS, Access())
    observe(file, 0)
    path = recording / LIVE_DIRECTORY / "health.json"
    first = path.stat()
    observe(file, 1)
    file.close()
    assert path.stat().st_ino == first.st_ino
    assert path.stat().st_size == HEALTH_BYTES
    assert stat.S_IMODE(first.st_mode) == 0o600


def test_the_file_of_an_earlier_recorder_goes_before_the_first_tick(recording):
    earlier = HealthFile(recording, FACTS, Access())
    observe(earlier, 0)
    earlier.close()
    HealthFile(recording, FACTS, Access()).close()
    assert read_health(recording) is None


def test_a_planted_link_is_not_written_through(recording, tmp_path):
    (tmp_path / "victim").write_text("kept")
    file = HealthFile(recording, FACTS, Access())
    (recording / LIVE_DIRECTORY / "health.json").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        observe(file, 0)
    file.close()
    assert (tmp_path / "victim").read_text() == "kept"
