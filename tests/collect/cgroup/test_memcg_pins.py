"""Real zombies of every kind on this kernel: counted, their parent and kind named, their files and holders found."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from tests.collect.fake_node import FakeNode
from tests.page_removals import Removals, traced_removals
from tests.parts import missing

from exhume.collect.cgroup import candidates, pins
from exhume.collect.cgroup.candidates import Candidate, SearchLimit
from exhume.collect.cgroup.census import take_census
from exhume.collect.cgroup.pages import PAGE, PageReader, cached_pages, cached_runs
from exhume.collect.cgroup.pins import KnownPins, classify, likely_pins
from exhume.collect.cgroup.residuals import residuals
from exhume.lab.zombies import ZombieLab, make_zombies
from exhume.model.stop import Stop
from exhume.model.zombies import ParentResidual, PinKind, PinnedFile, PinReport
from exhume.procfs.host import Host
from exhume.procfs.mountinfo import read_mounts

pytestmark = pytest.mark.xdist_group("cgroups")

HOST = Host()
COUNT = 120
SEARCH_S = 120  # a search that finds everything takes a second of it, and more on a machine that is busy otherwise
LEFT_FOR_A_MOMENT = 3  # cgroups of others that come and go on this machine

KINDS = {
    "tmpfs": ("shmem_bytes", PinKind.SHMEM),
    "ext4": ("file_bytes", PinKind.FILE),
    "shared": ("file_bytes", PinKind.FILE),
    "metadata": ("metadata_bytes", PinKind.METADATA),
    "swap": ("swap_bytes", PinKind.SWAP),
    "mlock": ("unevictable_bytes", PinKind.MLOCKED),
    "mapped": ("mapped_bytes", PinKind.MAPPED),
}


@pytest.fixture
def work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


def parent_of(lab: ZombieLab, removals: Removals | None = None) -> ParentResidual:
    """Once all its pages are reported but those that the kernel took by itself; it may be seconds late to tell."""
    until = time.monotonic() + 30
    while True:
        found = [parent for parent in residuals(HOST) if parent.path == str(lab.parent)]
        least = lab.made - (removals.of(lab).by_kernel if removals else 0)
        if sum(parent.bytes for parent in found) >= least * PAGE or time.monotonic() >= until:
            break
        time.sleep(0.1)
    assert len(found) == 1
    return found[0]


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
@pytest.mark.parametrize("pin", KINDS)
def test_the_parent_the_kind_and_the_files_are_named(pin: str, work: Path) -> None:
    assert_named(pin, work)


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
@pytest.mark.parametrize("pin", ["ext4", "swap"])
def test_they_are_named_without_cachestat_too(pin: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As before Linux 6.5."""
    monkeypatch.setattr(pins, "cached_pages", lambda *_: None)
    assert_named(pin, work)


def assert_named(pin: str, work: Path) -> None:
    measure, kind = KINDS[pin]
    with traced_removals() as removals, make_zombies(COUNT, pin, work=work) as lab:
        census = take_census(HOST)
        removed = removals.of(lab)
        assert census.dying is not None and census.dying >= lab.made - removed.by_kernel - LEFT_FOR_A_MOMENT
        parent = parent_of(lab, removals)
        report = likely_pins(HOST, [parent], seconds=SEARCH_S)
        (parent,) = classify([parent], report, None)
        pinned, looked = lab.pinned(), removals.of(lab)
        # What the kernel reclaimed by itself meanwhile, and nothing else, may be missing.
        least = COUNT - looked.by_kernel
        held = getattr(parent, measure)
        # The kernel counts locked pages in batches, per CPU.
        assert least * PAGE * 0.7 <= held <= COUNT * PAGE * 1.1
        assert least * PAGE <= parent.bytes <= COUNT * PAGE
        files = [file for file in report.files if file.kind is kind]
        if pin == "metadata":
            assert all(file.path.startswith("/dev/") for file in files)
        else:
            assert len(set(lab.files) - {Path(file.path) for file in files}) <= looked.by_kernel
        assert sum(file.pages for file in files) >= least
        # Nothing was read in, charged or freed by looking.
        assert looked.by_processes == removed.by_processes
        assert least <= pinned <= COUNT
        if lab.holder_pid is not None:
            holders = {(holder.pid, holder.how) for file in files for holder in file.holders}
            assert holders == {(lab.holder_pid, "mlocked" if pin == "mlock" else "mapped")}


@pytest.mark.root
def test_a_file_without_a_name_is_found_through_its_holder(work: Path) -> None:
    with make_zombies(20, "tmpfs", work=work) as lab:
        kept = [path.open("rb") for path in lab.files[:5]]
        child = os.fork()
        if child == 0:
            signal.pause()
        try:
            for path in lab.files[:5]:
                path.unlink()
            report = likely_pins(HOST, [parent_of(lab)], seconds=SEARCH_S)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
            for file in kept:
                file.close()
        nameless = [file for file in report.files if "no name any more" in file.path]
        assert len(nameless) == 5
        assert len(report.files) == 20


def test_without_the_right_to_look_it_says_so(node: FakeNode) -> None:
    parent = ParentResidual("/nowhere", 1, None, file_bytes=PAGE)
    report = likely_pins(node.host, [parent])
    assert report.files == []
    assert "run as root" in report.blind_spots[0]


def test_no_parents_no_search() -> None:
    assert likely_pins(HOST, []) == PinReport()


@pytest.mark.root
def test_a_search_without_time_says_that_it_is_not_complete(work: Path) -> None:
    with make_zombies(20, "tmpfs", work=work) as lab:
        report = likely_pins(HOST, [parent_of(lab)], seconds=0.0)
    assert any("out of time" in spot for spot in report.blind_spots)


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (pins, candidates):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.mark.parametrize(
    ("file_s", "looked_at"),
    [
        pytest.param(0.0005, 16_000, id="usual"),
        pytest.param(0.01, 2048, id="slow"),
        pytest.param(0.1, 480, id="starved"),
    ],
)
def test_a_search_on_a_slow_node_goes_on_until_enough_was_looked_at(
    file_s: float, looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    search = pins._Search(
        cast("PageReader", SimpleNamespace(look=lambda suspects: [])),
        [ParentResidual("/nowhere", 1, None, file_bytes=PAGE)],
        SearchLimit(8.0, pins._LEAST_FILES),
        lambda share: None,
    )

    def add(self: pins._Search, candidate: Candidate) -> None:
        clock.now += file_s
        self.looked_at += 1

    monkeypatch.setattr(pins._Search, "_add", add)
    assert not search.through(Candidate(str(number), "") for number in range(100_000))
    assert search.looked_at == pytest.approx(looked_at, rel=0.01)
    assert search.blind_spots()


def test_the_share_of_a_search_that_is_over_only_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    limit = SearchLimit(5.0, 100)
    shares = []
    for done in range(200):
        clock.now += 0.1
        shares.append(limit.share(done))
        assert (shares[-1] == 1.0) >= limit.reached(done)
    assert shares == sorted(shares) and shares[0] < 0.05 and shares[-1] == 1.0


def test_a_large_file_system_does_not_keep_others_from_being_looked_at(node: FakeNode) -> None:
    # Not below /dev, whose file systems are not looked at, and where the files of other tests may be.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        shown = shown_of_three_file_systems(node, Path(directory))
    assert len(shown) == len(set(shown)) == 1103
    last = max(number for number, path in enumerate(shown) if "small" in path)
    assert last < 3 * 100


def shown_of_three_file_systems(node: FakeNode, directory: Path) -> list[str]:
    lines = []
    for name, files in (("a-large", 1000), ("b-small", 3), ("c-small", 100)):
        (directory / name).mkdir()
        for number in range(files):
            (directory / name / str(number)).touch()
        lines.append(f"36 35 98:{len(lines)} / {directory}/{name} rw - ext4 /dev/{name} rw")
    node.mounts(*lines)
    places = candidates.candidates(node.host, [], candidates.ProcessFiles())
    return [candidate.shown for place in places for candidate in place]


class CountedSearches:
    """Files with one page each, all of them charged to the parent of zombies; counts how often all are listed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.directory, self.listed, self.files = directory, 0, [directory / "a", directory / "b"]
        self.inode = directory.stat().st_ino
        monkeypatch.setattr(pins, "candidates", self._candidates)
        monkeypatch.setattr(pins, "scan_processes", lambda *_: candidates.ProcessFiles())
        monkeypatch.setattr(pins, "PageReader", lambda host: self)
        self._owners: list[int] = []

    def search(self, node: FakeNode, pages: int, known: KnownPins, stop: Stop | None = None) -> PinReport:
        for path in self.files:
            path.write_bytes(b"x")
        parent = ParentResidual(str(self.directory), 1, None, file_bytes=pages * PAGE)
        return likely_pins(node.host, [parent], known=known, stop=stop)

    def _candidates(self, *_: object) -> list[Iterator[Candidate]]:
        self.listed += 1
        return [(Candidate(str(path), path.name) for path in self.files)]

    room = 1 << 30

    def add(self, owner: int, fd: int, offset: int, length: int, *, all_cached: bool, counted: bool) -> bool:
        self._owners.append(owner)
        return True

    def look(self, suspects: object) -> list[pins.Piece]:
        owners, self._owners = self._owners, []
        cgroups, flags = np.array([self.inode], np.uint64), np.zeros(1, np.uint64)
        return [pins.Piece(owner, 1, cgroups, flags, flags > 0) for owner in owners]

    def __enter__(self) -> "CountedSearches":
        return self

    def __exit__(self, *_: object) -> None:
        return


def test_a_node_is_not_searched_again_for_what_is_known(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches, known = CountedSearches(monkeypatch, tmp_path), KnownPins()
    first = searches.search(node, 40, known)
    again = searches.search(node, 40, known)
    assert searches.listed == 1
    assert [file.path for file in first.files] == ["a", "b"]
    assert (again.files, again.blind_spots, again.looked_at) == (first.files, first.blind_spots, first.looked_at)
    # One page more is within what statistics are off by; a tenth is new zombies.
    searches.search(node, 41, known)
    assert searches.listed == 1
    searches.files.append(tmp_path / "c")
    later = searches.search(node, 44, known)
    assert searches.listed == 2
    assert [file.path for file in later.files] == ["a", "b", "c"]


def test_a_stop_request_ends_a_search(node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, stop = CountedSearches(monkeypatch, tmp_path), Stop()
    add = searches.add

    def stop_after_the_first(owner: int, *args: int, **named: bool) -> bool:
        stop.set()
        return add(owner, *args, **named)

    monkeypatch.setattr(searches, "add", stop_after_the_first)
    report = searches.search(node, 40, KnownPins(), stop)
    assert [file.path for file in report.files] == ["a"]
    assert report.looked_at == 1
    assert any("was stopped" in spot for spot in report.blind_spots)


def test_known_files_that_no_longer_pin_are_left_out(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches, known = CountedSearches(monkeypatch, tmp_path), KnownPins()
    searches.search(node, 40, known)
    for path in searches.files:
        path.write_bytes(b"")
    searches.files = []
    report = searches.search(node, 2, known)
    assert (report.files, searches.listed) == ([], 1)


def test_files_of_a_container_are_not_searched_again_with_their_disk(node: FakeNode) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        upper = Path(directory) / "overlay2/one/diff"
        (upper / "deep").mkdir(parents=True)
        for path in (upper / "a", upper / "deep/b", Path(directory) / "c"):
            path.touch()
        node.mounts(
            f"36 35 98:0 / {directory} rw - ext4 /dev/disk rw",
            f"37 35 0:50 / /o rw - overlay overlay rw,lowerdir=/l,upperdir={upper},workdir=/w",
        )
        places = candidates.candidates(node.host, [], candidates.ProcessFiles())
        shown = [candidate.shown.removeprefix(directory) for place in places for candidate in place]
    assert shown == ["/overlay2/one/diff/a", "/overlay2/one/diff/deep/b", "/c"]


@pytest.mark.root
def test_pages_are_reported_files_of_any_length(tmp_path: Path) -> None:
    """Each of many files, from empty to larger than the arena's slices, has as many pages in memory as it should."""
    sizes = [1, 100, PAGE, PAGE + 1, 10 * PAGE, 1000 * PAGE + 17]
    inodes = set()
    with PageReader(HOST) as reader:
        for number, size in enumerate(sizes * 3):
            path = tmp_path / f"{number}"
            path.write_bytes(b"x" * size)
            fd = os.open(path, os.O_RDONLY)
            assert reader.add(number, fd, 0, size)
            os.close(fd)
        own = _own_memory_cgroup()
        pieces = reader.look(np.array([own], np.uint64))
        for piece, size in zip(pieces, sizes * 3, strict=True):
            assert piece.resident == -(-size // PAGE)
            inodes |= set(piece.cgroups.tolist())
            assert len(piece.cgroups) == piece.resident
            assert not piece.mapped.any()
    assert inodes == {own}


def _own_memory_cgroup() -> int:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return Path(f"/sys/fs/cgroup/memory{path}").stat().st_ino
        if number == "0" and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return Path(f"/sys/fs/cgroup{path}").stat().st_ino
    raise AssertionError("this process is in no memory cgroup")


@pytest.mark.root
def test_a_file_that_is_cut_short_while_it_is_looked_at_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100 * PAGE)
    with PageReader(HOST) as reader:
        fd = os.open(path, os.O_RDWR)
        reader.add(0, fd, 0, 100 * PAGE)
        real = reader._resident

        def truncating(*arguments):
            found = real(*arguments)
            os.truncate(path, 3 * PAGE)
            return found

        reader._resident = truncating  # type: ignore[method-assign]
        (piece,) = reader.look(np.array([_own_memory_cgroup()], np.uint64))
        os.close(fd)
    assert len(piece.cgroups) <= 3


@pytest.mark.root
def test_cached_stretches_are_found_by_halving(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1000 * PAGE)
        for page in (0, 1, 2, 500, 999):
            file.seek(page * PAGE)
            file.write(b"x")
    fd = os.open(path, os.O_RDONLY)
    if cached_pages(fd) is None:
        os.close(fd)
        missing("cachestat in this kernel")
    runs = list(cached_runs(fd, 1000 * PAGE, float("inf")))
    os.close(fd)
    pages = sorted(page for offset, length in runs for page in range(offset // PAGE, (offset + length) // PAGE))
    assert pages == [0, 1, 2, 500, 999]


def test_the_mount_table_is_read_with_its_blanks(node: FakeNode) -> None:
    node.mounts(
        r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root\134x rw,errors=continue",
        "37 35 0:50 / /o rw - overlay overlay rw,lowerdir=/l,upperdir=/u/diff,workdir=/w",
        "not a mount",
    )
    first, second = read_mounts(node.host.proc / "self/mountinfo")
    assert (first.device, first.root, first.point, first.source) == ((98, 0), "/mnt1", "/mnt 2", "/dev/root\\x")
    assert second.option("upperdir") == "/u/diff"
    assert second.option("nothing") is None


def test_unclassified_pages_are_of_the_kind_of_the_files_that_were_found() -> None:
    parent = ParentResidual("/cg/docker", 1, None, shmem_bytes=PAGE, unclassified_bytes=10 * PAGE, exact=False)
    files = [
        PinnedFile("/dev/shm/a", PinKind.SHMEM, 5, 5 * PAGE, parent="/cg/docker"),
        PinnedFile("/var/log/b", PinKind.FILE, 2, 2 * PAGE, parent="/cg/docker"),
        PinnedFile("/usr/lib/c", PinKind.MAPPED, 1, PAGE, parent="/cg/docker"),
        PinnedFile("/var/log/d", PinKind.FILE, 9, 9 * PAGE, parent="/cg/other"),
    ]
    (known,) = classify([parent], PinReport(files), 11)
    assert (known.shmem_bytes, known.file_bytes, known.mapped_bytes) == (5 * PAGE, 3 * PAGE, PAGE)
    assert known.unclassified_bytes == 3 * PAGE
    assert known.bytes == parent.bytes
    (certain,) = classify([parent, ParentResidual("/cg/x", 1, None, unclassified_bytes=PAGE)], PinReport(files), 8)
    assert (certain.path, certain.unclassified_bytes) == ("/cg/docker", 0), "8 zombies have 8 pages of known kinds"
