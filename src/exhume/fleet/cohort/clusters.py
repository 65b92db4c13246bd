"""Clusters: nodes that share a rack, a job or a wave of a rollout, and become sick together.

If sick nodes come in clusters, any attribute that correlates with the clusters seems to set sick nodes apart: a
hundred nodes in five racks are five observations, not a hundred. Clusters are the values of attributes that say where
a node is or what it is for. They count if the share of sick nodes differs between these values by more than chance,
leaving out the sickest one: a single value that is sicker than all others is an attribute that sets its nodes apart,
not a cluster. A separation must then exceed what it reaches when whole clusters of about the same size exchange their
labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from exhume.fleet.cohort.census import Bools, Values
from exhume.fleet.cohort.statistics import Floats, Ints

# Attributes that say where a node is, or what it is for. The others say what it is made of and may be causes
# themselves.
_PLACES = ("zone", "region", "pool", "label.")
# Fewer clusters cannot be exchanged in enough ways to prove anything.
LEAST_CLUSTERS, LEAST_MEMBERS = 6, 2
# Clusters count if chance explains their differences with a probability below this. If there are none, exchanging
# clusters is equivalent to exchanging nodes, and nothing is lost.
_ALPHA, _ROUNDS = 0.05, 999
MOST_CLUSTERINGS = 4
# A cluster is reported as sick from this many standard deviations above the others.
_SICKER = 2.5


@dataclass(frozen=True, eq=False)
class Clustering:
    """Nodes grouped by a value of an attribute: each node's index into `names`, -1 for nodes that share their value
    with no other."""

    key: str
    names: tuple[str, ...]
    codes: Ints

    @cached_property
    def sizes(self) -> Ints:
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))

    @cached_property
    def units(self) -> Ints:
        """The cluster of each node, where each node outside of a cluster counts as its own."""
        alone = self.codes < 0
        return np.where(alone, len(self.names) + np.cumsum(alone) - 1, self.codes)

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.codes, kind="stable")[int((self.codes < 0).sum()) :]

    @cached_property
    def _classes(self) -> Ints:
        """The size class of each cluster: within a class, no cluster has more than twice the nodes of another."""
        return np.floor(np.log2(np.maximum(self.sizes, 1))).astype(np.int64)

    def hits(self, label: Bools) -> Ints:
        return np.bincount(self.codes[label & (self.codes >= 0)], minlength=len(self.names))

    def draw(self, rng: np.random.Generator) -> Ints:
        """For each node, the node whose label it gets when clusters are exchanged: a random node of the other cluster,
        which is of about the same size. Nodes outside of clusters are exchanged among themselves."""
        found = np.empty(len(self.codes), np.int64)
        alone, own = np.flatnonzero(self.codes < 0), np.flatnonzero(self.codes >= 0)
        found[alone] = rng.permutation(alone)
        # Both orders are sorted by size class, smallest first, and random within a class.
        target = np.lexsort((rng.random(len(self.names)), self._classes))
        exchanged = np.empty(len(self.names), np.int64)
        exchanged[target] = np.lexsort((rng.random(len(self.names)), self._classes))
        source = exchanged[self.codes[own]]
        begins = np.cumsum(self.sizes) - self.sizes
        found[own] = self._order[begins[source] + (rng.random(len(own)) * self.sizes[source]).astype(np.int64)]
        return found

    def among(self, nodes: Bools) -> "Clustering":
        """The clustering restricted to some nodes."""
        kept = self.codes[nodes]
        used = np.unique(kept[kept >= 0])
        place = np.full(len(self.names) + 1, -1)
        place[used] = np.arange(len(used))
        return Clustering(self.key, tuple(self.names[each] for each in used.tolist()), place[kept])

    def spread(self, label: Bools) -> tuple[float, float]:
        """The variance between clusters relative to chance, and the probability of at least as much by chance; both
        without the sickest cluster."""
        hits, sizes = self.hits(label), self.sizes
        observed = float(_spread(sizes, hits[None, :])[0])
        rng = np.random.default_rng(len(self.names))
        by_chance = _spread(sizes, rng.multivariate_hypergeometric(sizes, int(hits.sum()), _ROUNDS))
        return observed, float((1 + (by_chance >= observed).sum()) / (1 + _ROUNDS))


def _spread(sizes: Ints, hits: Ints) -> Floats:
    """Pearson's chi-squared divided by its degrees of freedom, for each row of hits, without the sickest cluster."""
    rate = hits.sum(axis=1, keepdims=True) / sizes.sum()
    kept = np.ones(hits.shape, bool)
    kept[np.arange(len(hits)), ((hits - sizes * rate) / np.sqrt(sizes)).argmax(axis=1)] = False
    left, of = hits * kept, sizes * kept
    rate = left.sum(axis=1, keepdims=True) / of.sum(axis=1, keepdims=True)
    squares = np.where(kept, (left - of * rate) ** 2 / np.maximum(of, 1), 0.0).sum(axis=1)
    variance = (rate * (1 - rate))[:, 0]
    freedom = max(1, len(sizes) - 2)
    found: Floats = np.where(variance > 0, squares / np.where(variance > 0, variance, 1.0) / freedom, 0.0)
    return found


def clusterings_of(values: Values, moments: Ints, nodes: int) -> tuple[Clustering, ...]:
    """The attributes by which nodes may cluster, each as of its node's moment."""
    node, key, value = values.at(moments)
    found = []
    for place, name in enumerate(values.keys):
        if not name.startswith(_PLACES):
            continue
        rows = (key == place) & (value >= 0)
        kinds, column, counts = np.unique(value[rows], return_inverse=True, return_counts=True)
        shared = counts >= LEAST_MEMBERS
        # If nearly every node has a different value of the key, its values are no clusters.
        if shared.sum() < LEAST_CLUSTERS or len(kinds) > nodes / 2:
            continue
        codes = np.full(nodes, -1)
        codes[node[rows]] = np.where(shared, np.cumsum(shared) - 1, -1)[column]
        found.append(Clustering(name, tuple(values.values[each] for each in kinds[shared].tolist()), codes))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SickClusters:
    """Sick nodes cluster by the values of `key`, of which there are `clusters`. `sick` are the clusters with clearly
    more sick nodes than others, and `coverage` is the share of all sick nodes in them. `spread` is the variance
    between the other clusters relative to chance, `p` the probability of at least as much by chance."""

    key: str
    clusters: int
    sick: tuple[str, ...]
    coverage: float
    spread: float
    p: float


def active(clusterings: Sequence[Clustering], labels: Sequence[Bools]) -> tuple[Clustering, ...]:
    """The clusterings that differ by more than chance for any of the labels, the most explanatory first: teams differ
    if their jobs do, and jobs explain more."""
    found = []
    for each in clusterings:
        spreads = [each.spread(label) for label in labels if each.hits(label).sum()]
        clear = [spread for spread, p in spreads if p <= _ALPHA]
        if clear:
            found.append(((max(clear) - 1) * len(each.names), each))
    found.sort(key=lambda one: -one[0])
    return tuple(each for _, each in found[:MOST_CLUSTERINGS])


def sick_clusters(clustering: Clustering, label: Bools) -> SickClusters:
    hits, sizes = clustering.hits(label), clustering.sizes
    rate = float(hits.sum() / max(1, sizes.sum()))
    with np.errstate(invalid="ignore", divide="ignore"):
        above = (hits - sizes * rate) / np.sqrt(sizes * rate * (1 - rate))
    named = np.flatnonzero((above >= _SICKER) & (hits >= LEAST_MEMBERS))
    named = named[np.argsort(-hits[named], kind="stable")]
    spread, p = clustering.spread(label)
    return SickClusters(
        clustering.key,
        len(clustering.names),
        tuple(clustering.names[each] for each in named.tolist()),
        float(hits[named].sum() / max(1, int(label.sum()))),
        spread,
        p,
    )
