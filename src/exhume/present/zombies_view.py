"""The view model of dying cgroups (zombies): patterns of pinning files, containers, and `exhume zombies --json`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from exhume.collect.containers.identity import identify
from exhume.collect.containers.names import ContainerName
from exhume.diagnose.facts.leaks import Leaker
from exhume.diagnose.facts.lifetimes import path_pattern
from exhume.diagnose.growth import Growth
from exhume.diagnose.zombie_report import Explanation, ZombieReport
from exhume.model.times import format_moment
from exhume.model.zombies import HierarchyCensus, ParentResidual, PinKind, PinnedFile
from exhume.present.serializer import Shape, Shapes, to_json

JSON_VERSION = 1
FILES_IN_JSON = 100
CONTAINERS_SHOWN = 5
FILES_OF_A_DIRECTORY = 5


@dataclass(frozen=True, slots=True)
class PinPattern:
    """Files below one parent (its directory) whose paths differ only in ids and numbers."""

    pattern: str
    kind: PinKind
    parent: str
    files: list[PinnedFile]

    @property
    def pages(self) -> int:
        return sum(file.pages for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def certain(self) -> bool:
        return all(file.certain for file in self.files)

    @property
    def holders(self) -> dict[int, tuple[str, str]]:
        """The name of every process that holds one of the files, and how it holds it."""
        return {holder.pid: (holder.comm, holder.how) for file in self.files for holder in file.holders}


def pin_patterns(files: Sequence[PinnedFile]) -> list[PinPattern]:
    """Pinning files by path pattern, most pages first. Unrelated names in one directory (such as random names of
    temporary files) are grouped by directory if there are several."""
    alone, together = _grouped(files, path_pattern)
    alone, in_directories = _grouped(
        alone, lambda path: f"{path_pattern(path.rpartition('/')[0])}/*", FILES_OF_A_DIRECTORY
    )
    patterns = [*together, *in_directories]
    patterns += [PinPattern(file.path, file.kind, file.parent, [file]) for file in alone]
    return sorted(patterns, key=lambda each: (-each.pages, each.pattern))


def _grouped(
    files: Sequence[PinnedFile], pattern_of: Callable[[str], str], least: int = 2
) -> tuple[list[PinnedFile], list[PinPattern]]:
    """The files whose pattern is shared by fewer than `least`, and the groups of the others."""
    groups: dict[tuple[str, PinKind, str], list[PinnedFile]] = {}
    for file in files:
        # The number of a block device identifies it, so it is not generalised.
        pattern = file.path if file.kind is PinKind.METADATA else pattern_of(file.path)
        groups.setdefault((pattern, file.kind, file.parent), []).append(file)
    alone = [file for found in groups.values() if len(found) < least for file in found]
    return alone, [PinPattern(*key, found) for key, found in groups.items() if len(found) >= least]


def recorded_below(explanation: Explanation) -> Counter[str]:
    """Recorded zombies by the closest listed parent above them."""
    parents = {parent.name for parent in explanation.parents}
    found: Counter[str] = Counter()
    for leaker in explanation.leaks.leakers if explanation.leaks else ():
        above = Counter(life.path.rpartition("/")[0] for life in leaker.lives)
        for path, zombies in above.items():
            name = path
            while name and name not in parents:
                name = name.rpartition("/")[0]
            found[name or "/"] += zombies
    return found


def containers_of(leaker: Leaker, names: Mapping[str, ContainerName]) -> list[tuple[str, ContainerName | None, int]]:
    """The containers of a leaker: id, name if known, and number of zombies, in descending order of zombies."""
    counted: Counter[tuple[str, ContainerName | None]] = Counter()
    for life in leaker.lives:
        identity = identify(life.path)
        if identity is not None and identity.container is not None:
            name = names.get(identity.container)
            # Different ids with the same name (a container that is recreated each time) count as one container.
            counted["" if name else identity.container, name] += 1
    ids = {name: number for number, name in names.items()}
    return [
        (number or (ids.get(name, "") if name else ""), name, count) for (number, name), count in counted.most_common()
    ]


def zombies_json(report: ZombieReport, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume zombies --json`."""
    verdict, census = report.verdict, report.census
    hierarchies = [
        {
            **to_json(each, zone, _SHAPES),
            "growth": to_json(report.growth.get((each.name, each.controller)), zone, _SHAPES),
        }
        for each in census.hierarchies
    ]
    return {
        "version": JSON_VERSION,
        "node": report.node,
        "time": format_moment(report.wall, zone),
        "verdict": verdict.level,
        "summary": verdict.summary,
        "reasons": verdict.reasons,
        "thresholds": to_json(verdict.thresholds, zone),
        "zombies": census.dying,
        "hierarchies": hierarchies,
        "kernel_memory": {"slab_bytes": census.slab_bytes, "percpu_bytes": census.percpu_bytes},
        "blind_spots": [*census.blind_spots, *report.blind_spots],
        "explanation": report.explanation and _explanation(report.explanation, zone),
    }


def _explanation(explanation: Explanation, zone: tzinfo | None) -> dict[str, Any]:
    pins, below = explanation.pins, recorded_below(explanation)
    return {
        "parents": [
            {
                **to_json(parent, zone, _SHAPES),
                "recorded_zombies": below[parent.name] if explanation.leaks else None,
            }
            for parent in explanation.parents
        ],
        "pins": {
            "expected_bytes": pins.expected_bytes,
            "found_bytes": sum(file.bytes for file in pins.files if file.kind is not PinKind.SWAP),
            "files_looked_at": pins.looked_at,
            "seconds": round(pins.seconds, 3),
            "patterns": to_json(pin_patterns(pins.files), zone, _SHAPES),
            "files": to_json(pins.files[:FILES_IN_JSON], zone, _SHAPES),
            "files_left_off": max(0, len(pins.files) - FILES_IN_JSON),
        },
        "recorded": to_json(explanation.recorded, zone),
        "leakers": explanation.leaks and [_leaker(leaker, explanation, zone) for leaker in explanation.leaks.leakers],
        "blind_spots": [*explanation.blind_spots, *pins.blind_spots],
    }


def _leaker(leaker: Leaker, explanation: Explanation, zone: tzinfo | None) -> dict[str, Any]:
    return {
        "pattern": leaker.pattern,
        "zombies": leaker.zombies,
        "made": leaker.made,
        "per_hour": None if leaker.per_hour is None else round(leaker.per_hour, 1),
        "first": format_moment(leaker.first, zone),
        "last": format_moment(leaker.last, zone),
        "example": leaker.lives[-1].path,
        "creators": [{"comm": comm, "count": number} for comm, number in leaker.creators[:CONTAINERS_SHOWN]],
        "creator": to_json(explanation.creators.get(leaker.pattern), zone),
        "containers": [
            {
                "id": number or None,
                "name": name.name if name else None,
                "image": name.image if name else None,
                "count": counted,
            }
            for number, name, counted in containers_of(leaker, explanation.names)[:CONTAINERS_SHOWN]
        ],
    }


_SHAPES: Shapes = {
    HierarchyCensus: Shape(
        omit=("memory_measured", "growth_per_hour", "sampled_s", "number"),
        rename={"name": "hierarchy", "version": "cgroup_version", "dying": "zombies"},
        add=lambda each, _: {
            "memory_estimated": None if each.memory_bytes is None else not each.memory_measured,
            "note": each.note or None,
        },
    ),
    Growth: Shape(add=lambda each, _: {"per_hour": round(each.per_hour, 1), "seconds": round(each.seconds, 3)}),
    ParentResidual: Shape(omit=("version", "own_bytes"), rename={"name": "cgroup", "dying": "zombies"}),
    PinnedFile: Shape(omit=("parent", "dirty_pages"), add=lambda file, _: {"cgroup": file.parent or None}),
    PinPattern: Shape(
        omit=("parent", "files"),
        add=lambda each, _: {
            "cgroup": each.parent or None,
            "files": len(each.files),
            "pages": each.pages,
            "bytes": each.bytes,
            "certain": each.certain,
        },
    ),
}
