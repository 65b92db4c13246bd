"""Zombies as they are shown: patterns of files, parents, containers, and texts for the terminal."""

import io

import pytest
from rich.console import Console

from exhume.collect.containers.names import ContainerName
from exhume.diagnose.facts.leaks import Leaker, LeakReport, Life
from exhume.diagnose.growth import RECORDING, SAMPLING, Growth
from exhume.diagnose.zombie_report import Explanation, ZombieReport, judge
from exhume.model.clock import NANOS, Window
from exhume.model.text import size
from exhume.model.times import format_moment
from exhume.model.zombies import (
    Census,
    HierarchyCensus,
    Holder,
    ParentResidual,
    PinKind,
    PinnedFile,
    PinReport,
)
from exhume.present.terminal.zombies import format_growth, print_zombies, sparkline
from exhume.present.zombies_view import containers_of, pin_patterns, recorded_below, zombies_json

IDS = [f"{n:064x}" for n in range(1, 4)]
WALL = 1_780_000_000 * NANOS


def file(path: str, pages: int = 1, kind: PinKind = PinKind.FILE, parent: str = "/cg/docker") -> PinnedFile:
    return PinnedFile(path, kind, pages, pages * 4096, parent=parent)


def leaker(*paths: str) -> Leaker:
    return Leaker("/docker/*", len(paths), [Life(path, 1, 2, "runc", NANOS * n) for n, path in enumerate(paths)])


def report(**explanation) -> ZombieReport:
    census = Census(
        [HierarchyCensus("memory", 1, "/cg", "memory", 68_920, 240, 68_680, 13 << 30)], [], 9 << 30, 5 << 30
    )
    growth = {("memory", "memory"): Growth(409, 3600, 68_271, 68_680, WALL - 3600 * NANOS, RECORDING)}
    explained = Explanation(**{"parents": [], "pins": PinReport(), **explanation}) if explanation else None
    return ZombieReport("node-1", WALL, census, judge(census, growth), growth, [], explained)


def shown(what: ZombieReport) -> str:
    output = io.StringIO()
    print_zombies(Console(file=output, width=200, soft_wrap=True, highlight=False, markup=False), what, None)
    return output.getvalue()


def test_text_fits_a_narrow_terminal_and_tables_stay_whole() -> None:
    output = io.StringIO()
    terminal = Console(file=output, width=80, soft_wrap=True, highlight=False, force_terminal=True, color_system=None)
    print_zombies(terminal, report(), None)
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(output.getvalue().split()) == " ".join(shown(report()).split())
    assert sum(line.startswith("  memory, v1") for line in lines) == 1


POD = "/kubepods/burstable/pod0f3c2e1a-0000-4000-8000-000000000001/" + "a" * 64
AMOUNTS = {
    **{"shmem_bytes": 11 << 20, "anon_bytes": 12 << 20, "swap_bytes": 13 << 20, "unclassified_bytes": 14 << 20},
    **{"file_bytes": 25 << 20, "metadata_bytes": 10 << 20, "mapped_bytes": 16 << 20, "unevictable_bytes": 17 << 20},
}


def held_below(name: str, **amounts: int) -> ParentResidual:
    return ParentResidual(f"/cg{name}", 1, 1_234, name=name, **amounts)


def on_terminal(what: ZombieReport, width: int) -> list[str]:
    output = io.StringIO()
    terminal = Console(
        file=output, width=width, soft_wrap=True, highlight=False, force_terminal=True, color_system=None
    )
    print_zombies(terminal, what, None)
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 60])
def test_the_tables_of_an_explanation_fit_the_terminal(width: int) -> None:
    """Long paths are cut, and a table of many numbers becomes paragraphs; no number is lost."""
    held = [held_below(POD, **AMOUNTS), held_below("/system.slice", file_bytes=3 << 20)]
    files = [file(f"/var/lib/kubelet/pods/{'b' * 64}/volumes/data/segment{n}", parent=f"/cg{POD}") for n in range(3)]
    lines = on_terminal(report(parents=held, pins=PinReport(files)), width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    # Of the cached files 10 MiB are metadata.
    assert not [number for number in (10, 11, 12, 13, 14, 15, 16, 17) if size(number << 20) not in text]


def test_a_table_that_fits_stays_a_table() -> None:
    held = [held_below("/system.slice", file_bytes=3 << 20)]
    lines = on_terminal(report(parents=held), 80)
    assert any(line.split() == ["parent", "zombies", "file"] for line in lines)


def test_growth_has_the_times_of_both_counts() -> None:
    since, until = (format_moment(wall, None, digits=0) for wall in (WALL - 3600 * NANOS, WALL))
    assert f"68,271 at {since}, 68,680 at {until}\n" in shown(report())


def test_files_that_differ_in_numbers_are_one_pattern() -> None:
    patterns = pin_patterns([file(f"/shm/{n:04d}") for n in range(3)] + [file("/var/log/messages", 9)])
    assert [(each.pattern, len(each.files), each.pages) for each in patterns] == [
        ("/var/log/messages", 1, 9),
        ("/shm/*", 3, 3),
    ]


def test_generated_names_are_shown_by_their_directory() -> None:
    names = ["Kqxw", "Zlpo", "qwer", "Tyui", "asdf"]
    (pattern,) = pin_patterns([file(f"/tmp/x/{name}") for name in names])
    assert (pattern.pattern, len(pattern.files)) == ("/tmp/x/*", 5)
    assert len(pin_patterns([file(f"/tmp/x/{name}") for name in names[:4]])) == 4


def test_kinds_and_parents_are_kept_apart_and_devices_keep_their_number() -> None:
    patterns = pin_patterns(
        [
            file("/a/1"),
            file("/a/2", kind=PinKind.MAPPED),
            file("/a/3", parent="/cg/other"),
            file("/dev/loop0", kind=PinKind.METADATA),
            file("/dev/loop1", kind=PinKind.METADATA),
        ]
    )
    assert sorted(each.pattern for each in patterns) == ["/a/1", "/a/2", "/a/3", "/dev/loop0", "/dev/loop1"]


def test_containers_of_one_name_are_one() -> None:
    name = ContainerName("ecs-agent", "agent:1", "docker")
    found = containers_of(leaker(*(f"/docker/{number}" for number in IDS)), {IDS[0]: name, IDS[1]: name})
    assert [(each[1], each[2]) for each in found] == [(name, 2), (None, 1)]
    assert found[1][0] == IDS[2]


def test_recorded_zombies_belong_to_the_closest_named_parent() -> None:
    parents = [ParentResidual(f"/cg{name}", 1, None, name=name) for name in ("/docker", "/a", "/a/b")]
    lives = leaker("/docker/1", "/docker/2", "/a/b/c/d", "/a/x", "/elsewhere/y")
    explanation = Explanation(parents, PinReport(), LeakReport([lives], 5, 5))
    assert recorded_below(explanation) == {"/docker": 2, "/a/b": 1, "/a": 1, "/": 1}


@pytest.mark.parametrize(
    ("growth", "text"),
    [
        (None, "–"),
        (Growth(409.4, 3600, 0, 409, 0, RECORDING), "+409/h"),
        (Growth(-20, 3600, 20, 0, 0, RECORDING), "-20/h"),
        (Growth(0.1, 86400, 0, 2, 0, RECORDING), "flat"),
        (Growth(0, 0.34, 5, 5, 0, SAMPLING), "none in 0.3 s"),
    ],
)
def test_growth_as_text(growth: Growth | None, text: str) -> None:
    assert format_growth(growth) == text


def test_the_incident_on_a_terminal() -> None:
    text = shown(report())
    assert text.startswith(" MANY  68,680 zombie memory cgroups, and growing by 409 an hour")
    assert "68,920       240    68,680    ≥ 13.0 GiB   +409/h" in text
    assert "≥ what one costs at least" in text
    assert "68,271 at" in text
    assert "made by" not in text


def test_the_explanation_on_a_terminal() -> None:
    held = PinnedFile("/data/x", PinKind.MLOCKED, 5, 20480, [Holder(17, "vault\x1b[2J", "mlocked")], "/cg/docker")
    parents = [
        ParentResidual("/cg/docker", 1, None, shmem_bytes=1 << 20, name="/docker"),
        ParentResidual("/cg/x", 2, 300, file_bytes=4096, name="/x", exact=False),
    ]
    lives = leaker(*(f"/docker/{number}" for number in IDS))
    names = {number: ContainerName("ecs-agent", "agent:1", "docker") for number in IDS}
    text = shown(
        report(
            parents=parents,
            pins=PinReport([held, file("/shm/0001"), file("/shm/0002")], ["swap is hidden"], 40960, 7, 0.5),
            leaks=LeakReport([lives], 3, 3),
            recorded=Window(WALL - 3600 * NANOS, WALL),
            names=names,
        )
    )
    assert "≥ 3" in text and "300" in text
    assert "at most so much" in text
    assert "locked by vault\\x1b[2J (17)" in text
    assert "container: ecs-agent (agent:1), 3" in text
    assert "3 of 68,680 zombies" in text
    assert "swap is hidden" in text
    assert "\x1b" not in text


def test_without_a_recording_the_maker_is_not_known() -> None:
    assert "no recording of this boot" in shown(report(blind_spots=["x"]))
    assert zombies_json(report(blind_spots=["x"]), None)["explanation"]["leakers"] is None


def test_a_sparkline() -> None:
    assert sparkline([5, 5, 5]) == "▁▁▁"
    assert sparkline([0, 7, 14]) == "▁▄█"
