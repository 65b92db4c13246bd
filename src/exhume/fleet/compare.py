"""The differences between two nodes or two groups of nodes, by attributes, ordered by how likely they matter.

A node is a group of one. Weights are data (compare.toml); only keys and values decide.
"""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from exhume.fleet.attributes import (
    ACTIVE,
    CONDITION,
    CRASH_LOOP,
    FAILED,
    FLAPPING,
    NEVER_STARTED,
    TRIGGERED,
    UNHEALTHY,
    section_of_key,
)
from exhume.fleet.cohort.statistics import benjamini_hochberg
from exhume.model.inventory import Reason
from exhume.model.text import percent

COMPARISON_VERSION = 1
# The number of nodes with each value of each attribute.
Counts = Mapping[str, Mapping[str, int]]
# Key suffixes for properties of the unit that the rest of the key names.
_PARTS = ("because", "exit", "restarts", "absent")
# In groups of at least this many nodes, an attribute that is different on most of them identifies the node.
_MANY_NODES, _OWN_VALUES = 4, 0.5
# If any expected count is below this, the exact test is used instead of the approximation.
_LEAST_EXPECTED = 5.0
_SMALLEST = 1e-300


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: `label` is its name, `detail` what else is known of it (its uptime, the number of
    nodes)."""

    label: str
    counts: Counts
    nodes: int = 1
    detail: str = ""

    @classmethod
    def of_node(cls, label: str, attributes: Mapping[str, str], detail: str = "") -> "Side":
        return cls(label, {key: {value: 1} for key, value in attributes.items()}, 1, detail)

    def unread(self, section: str) -> int:
        """The number of nodes on which a section could not be read."""
        return sum(self.counts.get(f"missing.{section}", {}).values())

    def values(self, key: str) -> dict[str | None, int]:
        """The number of nodes with each value of an attribute; None stands for nodes that were read and lack it."""
        found: dict[str | None, int] = dict(self.counts.get(key, {}).items())
        absent = self.nodes - self.unread(section_of_key(key)) - sum(found.values())
        return {**found, None: absent} if absent > 0 else found


@dataclass(frozen=True, slots=True)
class Share:
    """What one side has: a value (None: the attribute is absent), and the share of its nodes with that value."""

    value: str | None
    share: float = 1.0
    because: str = ""
    exit: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """An attribute that differs. `name` is its object (a unit, a package), `rule` the kind of difference, `weight` how
    likely it matters; `q` is the false discovery rate of a difference between groups, None for single nodes."""

    key: str
    name: str
    rule: str
    title: str
    weight: float
    a: Share
    b: Share
    effect: float = 1.0
    q: float | None = None
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """A section that was not compared, because a side lacks it."""

    section: str
    side: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result: a summary sentence, and the differences, the likeliest to matter first."""

    a: Side
    b: Side
    sentence: str
    differences: tuple[Difference, ...] = ()
    compared: int = 0
    unread: tuple[Unread, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of difference. With `states`, the weight depends on the states."""

    id: str
    keys: tuple[str, ...]
    title: str
    weight: float
    states: bool
    follows: str | None


@dataclass(frozen=True, slots=True)
class Weights:
    """The content of compare.toml."""

    rules: tuple[Rule, ...]
    states: Mapping[str, float]
    both_share: float
    consequence_share: float
    least_effect: float
    most_q: float

    def rule_of(self, key: str) -> Rule:
        return next(rule for rule in self.rules if any(fnmatchcase(key, pattern) for pattern in rule.keys))

    def state(self, value: str | None) -> float:
        return self.states.get(value or "", self.states["other"])


@cache
def weights() -> Weights:
    content: dict[str, Any] = tomllib.loads((files("exhume.fleet") / "compare.toml").read_text(encoding="utf-8"))
    rules = tuple(
        Rule(
            each["id"],
            tuple(each["keys"]),
            each["title"],
            each.get("weight", 0.0),
            each.get("states", False),
            each.get("follows"),
        )
        for each in content["rule"]
    )
    return Weights(
        rules,
        content["states"],
        content["both"]["share"],
        content["consequence"]["share"],
        content["groups"]["least_effect"],
        content["groups"]["most_q"],
    )


def compare(a: Side, b: Side) -> Comparison:
    """Compare two sides."""
    unread = tuple(_unread(a, b))
    skipped = {each.section for each in unread}
    keys = sorted({*a.counts, *b.counts})
    compared = [
        key
        for key in keys
        if not key.startswith("missing.") and section_of_key(key) not in skipped and not _is_part(key)
    ]
    changes = {key: change for key in compared if (change := _change(a.values(key), b.values(key))) is not None}
    single = a.nodes == b.nodes == 1
    chances: dict[str, float] = {}
    if changes and not single:
        # Because of the correction a p-value may be above 1, and the logarithm of 0 is undefined.
        log_p = np.log(np.clip([change.p for change in changes.values()], _SMALLEST, 1.0))
        chances = dict(zip(changes, benjamini_hochberg(log_p).tolist(), strict=True))
    real = {key: change for key, change in changes.items() if single or _is_real(change, chances[key])}
    found = [_difference(a, b, key, change, chances.get(key), real) for key, change in real.items()]
    found.sort(key=lambda each: (-each.weight, each.key))
    return Comparison(a, b, sentence(a, b, found, unread), tuple(found), len(compared), unread)


def _is_part(key: str) -> bool:
    return key.startswith(("unit.", "bootstrap.")) and key.rpartition(".")[2] in _PARTS


def _unread(a: Side, b: Side) -> Iterable[Unread]:
    """Sections that are missing on every node of a side; a section that neither side has is not reported."""
    reasons = {
        (side.label, key.removeprefix("missing.")): max(found, key=lambda each: found[each])
        for side in (a, b)
        for key, found in side.counts.items()
        if key.startswith("missing.") and sum(found.values()) >= side.nodes
    }
    for (label, section), reason in reasons.items():
        if not all(reasons.get((side.label, section)) == Reason.ABSENT for side in (a, b)):
            yield Unread(section, label, reason)


@dataclass(frozen=True, slots=True)
class _Change:
    """The value in which two sides differ most: its shares, its p-value, and whether the sides have no value in
    common."""

    value: str | None
    a: float
    b: float
    p: float
    apart: bool
    own_values: bool


def _change(a: Mapping[str | None, int], b: Mapping[str | None, int]) -> _Change | None:
    total_a, total_b = sum(a.values()), sum(b.values())
    if not total_a or not total_b or (a.keys() == b.keys() and len(a) == 1):
        return None
    values = sorted({*a, *b}, key=lambda each: (each is None, each or ""))
    shares = {value: (a.get(value, 0) / total_a, b.get(value, 0) / total_b) for value in values}
    value = max(values, key=lambda each: abs(shares[each][0] - shares[each][1]))
    if shares[value][0] == shares[value][1]:
        return None
    # Bonferroni correction: as many tests as values.
    p = association(a.get(value, 0), total_a, b.get(value, 0), total_b) * len(values)
    own = all(
        total >= _MANY_NODES and len(counts) > _OWN_VALUES * total for counts, total in ((a, total_a), (b, total_b))
    )
    return _Change(value, *shares[value], min(1.0, p), not set(a) & set(b), own)


def _is_real(change: _Change, q: float) -> bool:
    if change.own_values:
        return False
    # Few nodes prove nothing, but a value that no node of the other side has is worth a look.
    return change.apart or (abs(change.a - change.b) >= weights().least_effect and q <= weights().most_q)


def _difference(  # noqa: PLR0917
    a: Side, b: Side, key: str, change: _Change, q: float | None, changes: Mapping[str, _Change]
) -> Difference:
    rule = weights().rule_of(key)
    on_a, on_b = _share(a, b, key), _share(b, a, key)
    effect = 1.0 if change.apart else abs(change.a - change.b)
    weight = rule.weight
    if rule.states:
        high, low = sorted((weights().state(on_a.value), weights().state(on_b.value)), reverse=True)
        weight = high + low * weights().both_share
    follows = rule.follows if rule.follows in changes else None
    if follows is not None:
        weight *= weights().consequence_share
    name = key.partition(".")[2] or key
    return Difference(key, name, rule.id, rule.title, round(weight * effect, 4), on_a, on_b, effect, q, follows)


def _share(side: Side, other: Side, key: str) -> Share:
    """What a side has: the value that distinguishes it most from the other side, even if only few of its nodes have
    it."""
    values, others = side.values(key), other.values(key)
    total, other_total = sum(values.values()), sum(others.values())
    value = max(values, key=lambda each: (values[each] / total - others.get(each, 0) / other_total, values[each]))
    because, ended = (_most_frequent(side, f"{key}.{part}") for part in ("because", "exit"))
    is_state = weights().rule_of(key).states or key == "bootstrap"
    return Share(
        value,
        values[value] / total,
        because if is_state and value in (NEVER_STARTED, CONDITION, FAILED) else "",
        ended if is_state and value in (FAILED, CRASH_LOOP, FLAPPING) else "",
    )


def _most_frequent(side: Side, key: str) -> str:
    counts = side.counts.get(key, {})
    return max(counts, key=lambda each: counts[each]) if counts else ""


def association(hits_a: int, total_a: int, hits_b: int, total_b: int) -> float:
    """The probability by chance that two groups differ at least this much in how many nodes have something: Fisher's
    exact test, for large counts Pearson's chi-squared with one degree of freedom."""
    total, hits = total_a + total_b, hits_a + hits_b
    if hits in (0, total):
        return 1.0
    expected = hits * total_a / total
    cells = (expected, total_a - expected, hits - expected, total_b - hits + expected)
    if min(cells) >= _LEAST_EXPECTED:
        squared = sum((hits_a - expected) ** 2 / cell for cell in cells)
        return math.erfc(math.sqrt(squared / 2))
    low, high = max(0, hits - total_b), min(hits, total_a)
    logs = {k: _log_choose(total_a, k) + _log_choose(total_b, hits - k) for k in range(low, high + 1)}
    whole = _log_choose(total, hits)
    # Tolerance for rounding, so that equally unlikely tables are included.
    limit = logs[hits_a] + 1e-9
    return min(1.0, sum(math.exp(each - whole) for each in logs.values() if each <= limit))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def sentence(a: Side, b: Side, differences: Sequence[Difference], unread: Sequence[Unread]) -> str:
    """The summary sentence."""
    if differences:
        return difference_text(differences[0], a.label, b.label)
    whole = "" if not unread else f" in what could be compared; not compared: {', '.join(_sections(unread))}"
    return f"{a.label} and {b.label} do not differ{whole}"


def _sections(unread: Sequence[Unread]) -> list[str]:
    return list(dict.fromkeys(each.section for each in unread))


def difference_text(difference: Difference, a: str, b: str) -> str:
    """A difference as a sentence without its full stop: `X crash-loops on A; on B it never started, because Y
    failed`."""
    if weights().rule_of(difference.key).states:
        (does_a, why_a), (does_b, why_b) = _state_text(difference.a), _state_text(difference.b)
        on_a = f"{difference.name} {does_a} on {a}{_of(difference.a)}{why_a}"
        return f"{on_a}; on {b} it {does_b}{_of(difference.b)}{why_b}"
    if difference.key == "bootstrap":
        return "; ".join(
            f"the bootstrap {'went well' if share.value == 'ok' else 'failed'} on {label}{_of(share)}{_because(share)}"
            for share, label in ((difference.a, a), (difference.b, b))
        )
    what = difference.title if difference.key in _PLAIN_KEYS else f"{difference.title} ({difference.name})"
    values = [
        f"{_value_text(share.value)} on {label}{_of(share)}" for share, label in ((difference.a, a), (difference.b, b))
    ]
    return f"{what}: {', '.join(values)}"


# Keys whose title is sufficient.
_PLAIN_KEYS = frozenset(("kernel", "image", "os", "cgroup.version", "hardware.clocksource", "cloud_init"))


def _value_text(value: str | None) -> str:
    return "none" if value is None else value


def _of(share: Share) -> str:
    """The share of a group, empty if it is all of it."""
    return "" if share.share >= 1.0 else f" ({percent(share.share, 0)} of nodes)"


def _because(share: Share) -> str:
    return f", because of {share.because}" if share.because else ""


def _state_text(share: Share) -> tuple[str, str]:
    """The state of a unit as a verb phrase, and its reason."""
    value = share.value
    if value is None:
        return "is not there", ""
    ended = f" ({share.exit})" if share.exit else ""
    if value == NEVER_STARTED:
        # The root cause comes last.
        *between, first = share.because.split(" ")
        through = f" (through {', '.join(between)})" if between else ""
        return "never started", f", because {first} failed{through}" if first else ""
    if value == CONDITION:
        return "was not started", f", because {share.because} did not hold" if share.because else ""
    known = {
        CRASH_LOOP: "crash-loops",
        FAILED: f"failed{ended}",
        FLAPPING: f"comes and goes{ended}",
        UNHEALTHY: "is unhealthy",
        ACTIVE: "is active",
        "running": "runs",
        TRIGGERED: "is started by a timer or path",
    }
    return known.get(value, f"is {value.replace('/', ' and ')}"), ""
