"""What sets sick nodes apart: attributes and pairs of attributes, ranked by how well they explain which nodes are
sick.

Every value of every attribute is tried against every cause. They are ranked by likelihood (the G statistic), not by
p-value or ratio: of a cause and its confounders, the cause explains most. Two corrections account for the number of
attempts: Benjamini and Hochberg's false discovery rate, and shuffling the labels of the nodes, which preserves the
dependence between attributes. If sick nodes come in clusters, whole clusters are shuffled as well. Attributes that the
data cannot distinguish from the first are listed with it, and attributes that it explains away are marked.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from exhume.fleet.cohort.census import Bools, Values
from exhume.fleet.cohort.clusters import Clustering, SickClusters, active, clusterings_of, sick_clusters
from exhume.fleet.cohort.statistics import (
    Floats,
    Ints,
    Matrix,
    Stratum,
    adjusted_p,
    benjamini_hochberg,
    clustered_error,
    fisher_exact,
    g_statistic,
    greatest_by_chance,
    mantel_haenszel,
    risk_ratio,
)
from exhume.model.finding import Estimate

# A value shared by fewer nodes sets nothing apart.
LEAST_NODES, LEAST_SHARE = 3, 0.005
MOST_PROPERTIES = 4000
# A separation is reported if its false discovery rate and the probability of any by chance are below ALPHA, and its
# ratio is at least LEAST_RATIO.
ALPHA, LEAST_RATIO = 0.01, 1.2
# Rounds of shuffling: more if they are cheap.
FEWEST_ROUNDS, MOST_ROUNDS, WORK = 299, 1999, 4e10
# Pairs combine this many of the single properties that separate with this many others.
MOST_FIRST, MOST_SECOND, MOST_PAIRS = 40, 300, 200
# Two explanations are indistinct below this difference in twice the log likelihood: one is at most 20 times as likely.
INDISTINCT = 2 * math.log(20)
# Two sets of nodes are the same if their overlap (Jaccard index) is at least this.
SAME_SHARE = 0.8
MOST_SEPARATORS, MOST_SAME = 8, 12
LEAST_COVERAGE = 0.1
# If there are clusters: how many pairs are compared within them, with how many rounds, and how many of the attributes
# that merely correlate with clusters are named.
_MOST_PAIRS_IN_CLUSTERS, _ROUNDS_IN_CLUSTERS, MOST_UNPROVEN = 24, 499, 5
_SEED = 1
# Attributes assigned to a node, in the order in which they are named. States come last: they may be consequences.
_GIVEN = ("image", "zone", "kernel", "instance_type", "pool", "nic.driver", "nic.firmware", "os")
_STATES = ("unit.", "bootstrap", "container.")


@dataclass(frozen=True, slots=True)
class Condition:
    """An attribute with a value."""

    key: str
    value: str

    @property
    def is_state(self) -> bool:
        """Whether the attribute may be a consequence of the trouble rather than its cause."""
        return self.key.startswith(_STATES)

    @property
    def order(self) -> tuple[int, str, str]:
        rank = _GIVEN.index(self.key) if self.key in _GIVEN else len(_GIVEN) + self.is_state
        return rank, self.key, self.value


@dataclass(frozen=True, slots=True)
class Separator:
    """Nodes that share some attributes, and how much sicker they are than the others, by incidents of `cause` (of any
    cause if empty). `q` bounds the false discovery rate; `p` is the probability that the best of all attempts is as
    good by chance. `coverage` is the share of sick nodes among them. `same_nodes` are other attributes that explain it
    as well and that this fleet cannot distinguish. `given_first` is the ratio after accounting for the first
    separator; `explained`: nothing is left then."""

    conditions: tuple[Condition, ...]
    cause: str
    nodes: int
    sick: int
    others: int
    other_sick: int
    risk_ratio: Estimate
    coverage: float
    likelihood: float
    q: float
    p: float
    same_nodes: tuple[tuple[Condition, ...], ...] = ()
    given_first: Estimate | None = None
    explained: bool = False


@dataclass(frozen=True)
class Properties:
    """Which node has which attribute: a column per condition; conditions with identical columns share one."""

    conditions: list[tuple[Condition, ...]]
    matrix: Matrix
    skipped_keys: list[str] = field(default_factory=list)
    clusterings: tuple[Clustering, ...] = ()


@dataclass(frozen=True)
class Separation:
    """The separators, the best first; how many attributes and pairs were tried; and the nodes of the first. `clusters`
    are those in which sick nodes come if nothing separates; `unproven` are attributes that correlate with the clusters
    and may do so by chance."""

    separators: tuple[Separator, ...]
    tried: int
    members: Bools | None = None
    clusters: tuple[SickClusters, ...] = ()
    unproven: tuple[Condition, ...] = ()


def properties_of(values: Values, moments: Ints, nodes: int) -> Properties:
    """The attributes of the nodes, each as of its node's moment."""
    node, key, value = values.at(moments)
    kept = value >= 0
    node, code = node[kept], (key * max(1, len(values.values)) + value)[kept]
    codes, column, counts = np.unique(code, return_inverse=True, return_counts=True)
    least = max(LEAST_NODES, math.ceil(LEAST_SHARE * nodes))
    usable = (counts >= least) & (counts <= nodes - LEAST_NODES)
    of_keys = codes // max(1, len(values.values))
    # A key whose value differs on nearly every node is an identifier.
    several = np.bincount(of_keys, minlength=len(values.keys))
    dropped = [values.keys[each] for each in np.flatnonzero(several > nodes / 2).tolist()]
    if usable.sum() > MOST_PROPERTIES:
        even = np.minimum(counts, nodes - counts) * usable
        usable &= even >= np.partition(even, -MOST_PROPERTIES)[-MOST_PROPERTIES]
    place = np.cumsum(usable) - 1
    matrix = np.zeros((nodes, int(usable.sum())), np.float32)
    chosen = usable[column]
    matrix[node[chosen], place[column[chosen]]] = 1.0
    conditions = [
        Condition(values.keys[each // len(values.values)], values.values[each % len(values.values)])
        for each in codes[usable].tolist()
    ]
    return replace(_distinct(conditions, matrix, dropped), clusterings=clusterings_of(values, moments, nodes))


def _distinct(conditions: list[Condition], matrix: Matrix, dropped: list[str]) -> Properties:
    """Merge identical columns."""
    alike: dict[bytes, list[int]] = {}
    packed = np.packbits(matrix.astype(bool), axis=0).T
    for place in sorted(range(len(conditions)), key=lambda each: conditions[each].order):
        alike.setdefault(packed[place].tobytes(), []).append(place)
    groups = list(alike.values())
    kept = matrix[:, [group[0] for group in groups]]
    return Properties([tuple(conditions[each] for each in group) for group in groups], kept, dropped)


@dataclass(frozen=True, eq=False)
class _Candidate:
    conditions: tuple[Condition, ...]
    likelihood: float
    members: Bools
    log_p: float
    aliases: tuple[tuple[Condition, ...], ...] = ()

    @property
    def rank(self) -> tuple[bool, float]:
        return any(each.is_state for each in self.conditions), -self.likelihood


@dataclass(frozen=True)
class _Nulls:
    """The null distributions of the greatest G for a label: over all of the labels with nodes shuffled, and for this
    label with clusters shuffled, one per clustering."""

    nodes: Floats
    clusters: tuple[Floats, ...] = ()
    labels: int = 1

    @property
    def bound(self) -> float:
        """The likelihood that a separation has to exceed."""
        bounds = [np.quantile(self.nodes, 1 - ALPHA, method="higher")]
        bounds += [np.quantile(each, 1 - ALPHA / self.labels, method="higher") for each in self.clusters]
        return float(max(bounds))

    def p(self, likelihood: float) -> float:
        """The probability that the best of all is as good by chance."""
        every = [adjusted_p(likelihood, self.nodes)]
        every += [min(1.0, self.labels * adjusted_p(likelihood, each)) for each in self.clusters]
        return max(every)


def separate(properties: Properties, labels: Mapping[str, Bools]) -> Separation:
    """What separates the nodes of each label (a cause, or empty for any) from the others."""
    matrix, nodes = properties.matrix, len(properties.matrix)
    labels = {name: label for name, label in labels.items() if 0 < label.sum() < nodes}
    if not matrix.shape[1] or not labels:
        return Separation((), 0)
    sick = np.stack([label.astype(np.float32) for label in labels.values()], axis=1)
    members, totals = matrix.sum(axis=0, dtype=np.float64), sick.sum(axis=0, dtype=np.float64)
    hits = (matrix.T @ sick).astype(np.float64)
    likelihood = g_statistic(hits, members[:, None], totals[None, :], nodes)
    log_p = _log_p(hits, members, totals, nodes, likelihood)
    q = benjamini_hochberg(log_p.ravel()).reshape(log_p.shape)
    rounds = int(np.clip(WORK / (2 * matrix.size * sick.shape[1]), FEWEST_ROUNDS, MOST_ROUNDS))
    by_chance = greatest_by_chance(matrix, sick, rounds, _SEED).max(axis=1)
    clear = (q <= ALPHA) & (likelihood > _Nulls(by_chance).bound)
    tried = log_p.size
    every = labels.get("", next(iter(labels.values())))
    found: list[tuple[_Trial, list[_Candidate]]] = []
    for column, (name, label) in enumerate(labels.items()):
        if not clear[:, column].any():
            continue
        clusterings = active(properties.clusterings, (label, every))
        own = sick[:, column : column + 1]
        drawn = (greatest_by_chance(matrix, own, rounds, _SEED, each.draw)[:, 0] for each in clusterings)
        nulls = _Nulls(by_chance, tuple(drawn), len(labels))
        singles = np.flatnonzero(clear[:, column] & (likelihood[:, column] > nulls.bound))
        singles = singles[np.argsort(-likelihood[singles, column], kind="stable")]
        candidates = [
            _Candidate(
                (group[0],),
                float(likelihood[place, column]),
                matrix[:, place] > 0,
                float(log_p[place, column]),
                tuple((each,) for each in group[1:]),
            )
            for place in singles.tolist()
            for group in [properties.conditions[place]]
        ]
        if candidates:
            given = likelihood[:, column]
            pairs, compared = _pairs(properties, label, given, singles[:MOST_FIRST], clusterings)
            candidates, tried = candidates + pairs, tried + compared
            found.append((_Trial(name, label, nulls, clusterings), candidates))
    separators: tuple[Separator, ...] = ()
    if found:
        # A label whose best property explains few of the sick nodes does not come first, however clear it is.
        best, candidates = max(found, key=lambda each: _explained(each[1], every))
        separators, first = best.ranked(candidates, tried)
    if not separators:
        clusterings = active(properties.clusterings, (every,)) if clear.any() else ()
        groups = [properties.conditions[each] for each in np.argsort(-(likelihood * clear).max(axis=1)).tolist()]
        keys = {each.key for each in clusterings}
        unproven = [group[0] for group in groups[: int(clear.any(axis=1).sum())] if group[0].key not in keys]
        clusters = tuple(sick_clusters(each, every) for each in clusterings)
        return Separation((), tried, None, clusters, tuple(unproven[:MOST_UNPROVEN]))
    # A second cause with nodes of its own may be among the other labels' separators.
    for other, rest in found:
        if other.cause not in ("", best.cause):
            more, _ = other.ranked(rest, tried)
            separators += tuple(each for each in more[:1] if each.conditions != separators[0].conditions)
    return Separation(separators, tried, first)


def _explained(candidates: Sequence["_Candidate"], every: Bools) -> tuple[bool, float]:
    best = max(candidates, key=lambda each: each.likelihood)
    return bool((best.members & every).sum() >= LEAST_COVERAGE * every.sum()), best.likelihood


def _log_p(hits: Floats, members: Floats, totals: Floats, nodes: int, likelihood: Floats) -> Floats:
    """The logarithms of Fisher's p-values; 0 (p = 1) if the likelihood already shows that there is nothing."""
    found = np.zeros(hits.shape)
    for row, column in np.argwhere(likelihood > 2.0).tolist():
        counts = int(hits[row, column]), int(members[row]), int(totals[column])
        found[row, column] = fisher_exact(*counts, nodes)
    return found


def _pairs(
    properties: Properties, label: Bools, likelihood: Floats, firsts: Ints, clusterings: Sequence[Clustering]
) -> tuple[list[_Candidate], int]:
    """Pairs that explain clearly more than either part, where each part separates the nodes of the other, also within
    clusters; and how many were compared."""
    matrix, nodes = properties.matrix, len(properties.matrix)
    seconds = np.flatnonzero(likelihood > 0)
    seconds = seconds[np.argsort(-likelihood[seconds], kind="stable")][:MOST_SECOND]
    one, other, sick = matrix[:, firsts], matrix[:, seconds], label.astype(np.float32)
    both = (one.T @ other).astype(np.float64)
    hits = ((one * sick[:, None]).T @ other).astype(np.float64)
    total = float(sick.sum())
    gained = g_statistic(hits, both, total, nodes)
    single = np.maximum(likelihood[firsts][:, None], likelihood[seconds][None, :])
    counts = matrix.sum(axis=0, dtype=np.float64)
    # Each pair once, and no pair in which one part includes all nodes of the other.
    usable = (hits >= LEAST_NODES) & (both < counts[firsts][:, None]) & (both < counts[seconds][None, :])
    usable &= ~np.isin(seconds, firsts)[None, :] | (firsts[:, None] < seconds[None, :])
    compared = int(usable.sum())
    if not compared:
        return [], 0
    usable &= gained > single + INDISTINCT + 2 * math.log(compared)
    rows, columns = np.nonzero(usable)
    order = np.argsort(-gained[rows, columns], kind="stable")[:MOST_PAIRS]
    bound = math.log(ALPHA / compared)
    bounds = _ClusterBounds(other, label, clusterings)
    found: list[_Candidate] = []
    compared_in_clusters = 0
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        parts = int(firsts[row]), int(seconds[column])
        masks = [matrix[:, part] > 0 for part in parts]
        if not all(_separates(mask, rest, label) <= bound for mask, rest in (masks, masks[::-1])):
            continue
        if clusterings:
            compared_in_clusters += 1
            if compared_in_clusters > _MOST_PAIRS_IN_CLUSTERS:
                break
            if not all(bounds.exceeded(mask, rest) for mask, rest in (masks, masks[::-1])):
                continue
        conditions = sorted((properties.conditions[part][0] for part in parts), key=lambda each: each.order)
        members = masks[0] & masks[1]
        log_p = fisher_exact(int((members & label).sum()), int(members.sum()), int(total), nodes)
        aliases = tuple(
            tuple(sorted((a, b), key=lambda each: each.order))
            for a in properties.conditions[parts[0]]
            for b in properties.conditions[parts[1]]
        )
        found.append(_Candidate(tuple(conditions), float(gained[row, column]), members, log_p, aliases[1:]))
    return found, compared


def _separates(mask: Bools, within: Bools, label: Bools) -> float:
    """The logarithm of Fisher's p-value of a property among the nodes that have another."""
    members = mask & within
    return fisher_exact(
        int((members & label).sum()), int(members.sum()), int((within & label).sum()), int(within.sum())
    )


class _ClusterBounds:
    """The bounds that a property must exceed to separate the nodes that have another, if whole clusters are sick by
    chance: the best value that any property reaches."""

    def __init__(self, properties: Matrix, label: Bools, clusterings: Sequence[Clustering]) -> None:
        self._properties, self._label, self._clusterings = properties, label, clusterings
        self._bounds: dict[bytes, float] = {}

    def exceeded(self, mask: Bools, within: Bools) -> bool:
        key = np.packbits(within).tobytes()
        if key not in self._bounds:
            self._bounds[key] = max(self._bound(each, within) for each in self._clusterings)
        table = _table(mask, self._label, within)
        hits, members = np.array([table.hits], float), np.array([table.members], float)
        sick, nodes = float(table.hits + table.other_hits), table.members + table.others
        return float(g_statistic(hits, members, sick, nodes)[0]) > self._bounds[key]

    def _bound(self, clustering: Clustering, within: Bools) -> float:
        rows, sick = self._properties[within], self._label[within][:, None].astype(np.float32)
        draw = clustering.among(within).draw
        by_chance = greatest_by_chance(rows, sick, _ROUNDS_IN_CLUSTERS, _SEED, draw)
        return float(np.quantile(by_chance, 1 - ALPHA, method="higher"))


def _overlap(one: Bools, other: Bools) -> float:
    return float((one & other).sum() / max(1, (one | other).sum()))


@dataclass(frozen=True, eq=False)
class _Trial:
    """One label, and the distributions by which its separators are judged."""

    cause: str
    label: Bools
    nulls: _Nulls
    clusterings: tuple[Clustering, ...]

    def ranked(self, candidates: Sequence[_Candidate], tried: int) -> tuple[tuple[Separator, ...], Bools]:
        """The separators of the label. The first one represents all that explain it equally well."""
        best = max(candidates, key=lambda each: each.likelihood)
        alike = [
            each
            for each in candidates
            if each.likelihood >= best.likelihood - INDISTINCT and _overlap(each.members, best.members) >= SAME_SHARE
        ]
        # Assigned attributes are preferred to states, which may be consequences.
        first = min(alike, key=lambda each: each.rank)
        names = [each.conditions for each in sorted(alike, key=lambda each: each.rank) if each is not first]
        names += [alias for each in alike for alias in each.aliases]
        same = tuple(dict.fromkeys(names))[:MOST_SAME]
        separators = [self._separator(first, tried, same)]
        rest = sorted((each for each in candidates if each not in alike), key=lambda each: -each.likelihood)
        for each in rest:
            made = self._separator(each, tried, each.aliases[:MOST_SAME], first.members)
            # A pair that the first explains is merely one of its confounders combined with something else.
            kept = len(each.conditions) == 1 or not made.explained
            if kept and made.risk_ratio.low >= LEAST_RATIO and len(separators) < MOST_SEPARATORS:
                separators.append(made)
        # Separators with an effect of their own come before those that the first explains.
        separators[1:] = sorted(separators[1:], key=lambda each: each.explained)
        return tuple(each for each in separators if each.risk_ratio.low >= LEAST_RATIO), first.members

    def _separator(
        self,
        candidate: _Candidate,
        tried: int,
        same: tuple[tuple[Condition, ...], ...],
        first: Bools | None = None,
    ) -> Separator:
        members, label = candidate.members, self.label
        table = _table(members, label, np.ones(len(label), bool))
        error = max((clustered_error(members, label, each.units) for each in self.clusterings), default=0.0)
        given = None
        if first is not None:
            given = mantel_haenszel([_table(members, label, first), _table(members, label, ~first)])
        return Separator(
            candidate.conditions,
            self.cause,
            table.members,
            table.hits,
            table.others,
            table.other_hits,
            risk_ratio(table.hits, table.members, table.other_hits, table.others, error),
            table.hits / max(1, int(label.sum())),
            candidate.likelihood,
            # Bonferroni: never below the Benjamini-Hochberg rate.
            math.exp(min(0.0, candidate.log_p + math.log(tried))),
            self.nulls.p(candidate.likelihood),
            same,
            given,
            first is not None and (given is None or given.low <= LEAST_RATIO),
        )


def _table(members: Bools, label: Bools, within: Bools) -> Stratum:
    inside, outside = members & within, ~members & within
    return Stratum(int((inside & label).sum()), int(inside.sum()), int((outside & label).sum()), int(outside.sum()))
