"""How growth is named, and the trees of files that stand for large nodes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from bench.scale_curves import Curve

from bench import scale_curves
from exhume.model.clock import NANOS, Tick
from exhume.procfs.host import Host


@pytest.mark.parametrize(
    ("cost", "beginning"),
    [
        (lambda size: 0.3, "does not grow with cores"),
        (lambda size: 0.1 + 0.002 * size, "linear in cores: 2.000% of a core"),
        (lambda size: 0.1 + 0.02 * size**0.5, "less than linear in cores"),
        (lambda size: 0.1 + 0.0001 * size**2, "more than linear in cores"),
    ],
)
def test_the_name_of_the_growth(cost: Callable[[float], float], beginning: str) -> None:
    sizes = (2, 16, 48, 96, 192)
    curve = Curve("cores", sizes, [cost(size) for size in sizes], "simulated")
    assert curve.growth.startswith(beginning)
    assert [bool(row.note) for row in curve.rows()] == [False, False, False, False, True]


def rows_of(host: Host) -> dict[str, int]:
    """How many rows each table has in the second tick."""
    sources = list(scale_curves._sources(host))
    found: dict[str, int] = {}
    for second in range(2):
        end = (1000 + second * 60) * NANOS
        for source in sources:
            given = source.read(Tick(second, end - NANOS, end, end))
            found |= {table: len(next(iter(columns.values()))) for table, columns in given.items()}
    for source in sources:
        source.close()
    return found


def test_the_trees_are_read_by_their_sources(tmp_path: Path) -> None:
    for build in (scale_curves._cores, scale_curves._threads, scale_curves._cgroups, scale_curves._zombies):
        host = build(tmp_path / build.__name__, 6)
        names = {source.name for source in scale_curves._sources(host)}
        if build is scale_curves._cores:
            assert names == {"cpu", "node", "softnet", "interrupts", "threads"}
            assert rows_of(host).keys() >= {"node"}
        elif build is scale_curves._threads:
            assert names == {"threads"}
        else:
            assert names == {"throttling", "cgroups"}
            assert rows_of(host)["cgroups"] == 1
