"""Clusters: nodes that share a rack, a job or a wave of a rollout, and become sick together.

Where they do, any attribute that goes with the clusters seems to set sick nodes apart: a hundred nodes of five racks
are five observations, not a hundred. Clusters are the values of attributes that say where a node is or what it is for.
They count where these values differ in their sick nodes by more than chance, the sickest of them left out: a single
value that is sicker than all others is an attribute that sets its nodes apart, not a cluster. What is compared then
has to exceed what it reaches when whole clusters of about the same size exchange their labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from exhume.fleet.cohort.census import Bools, Values
from exhume.fleet.cohort.statistics import Floats, Ints

# Attributes that say where a node is, or what it is for; others say what it is made of, and may be causes themselves.
_PLACES = ("zone", "region", "pool", "label.")
# Fewer clusters can't be exchanged in enough ways to prove anything.
LEAST_CLUSTERS, LEAST_MEMBERS = 6, 2
# Clusters count when chance explains their differences as rarely as this: where there are none, exchanging them is the
# same as exchanging nodes, and nothing is lost.
_ALPHA, _ROUNDS = 0.05, 999
MOST_CLUSTERINGS = 4
# From so many standard deviations above the others on, a cluster is named as sick.
_SICKER = 2.5


@dataclass(frozen=True, eq=False)
class Clustering:
    """The nodes by a value of an attribute: the place of each in `names`, -1 for those that share it with none."""

    key: str
    names: tuple[str, ...]
    codes: Ints

    @cached_property
    def sizes(self) -> Ints:
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))

    @cached_property
    def units(self) -> Ints:
        """The same with each node that is in no cluster as one of its own."""
        alone = self.codes < 0
        return np.where(alone, len(self.names) + np.cumsum(alone) - 1, self.codes)

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.codes, kind="stable")[int((self.codes < 0).sum()) :]

    @cached_property
    def _classes(self) -> Ints:
        """Clusters of which none has more than twice the nodes of another have the same class."""
        return np.floor(np.log2(np.maximum(self.sizes, 1))).astype(np.int64)

    def hits(self, label: Bools) -> Ints:
        return np.bincount(self.codes[label & (self.codes >= 0)], minlength=len(self.names))

    def draw(self, rng: np.random.Generator) -> Ints:
        """For each node, the one whose label it gets if clusters are exchanged: any node of the other cluster, which
        has about as many. Nodes in no cluster are exchanged among themselves."""
        found = np.empty(len(self.codes), np.int64)
        alone, own = np.flatnonzero(self.codes < 0), np.flatnonzero(self.codes >= 0)
        found[alone] = rng.permutation(alone)
        # Small ones come first in both orders, by class of size; within a class the order is random.
        target = np.lexsort((rng.random(len(self.names)), self._classes))
        exchanged = np.empty(len(self.names), np.int64)
        exchanged[target] = np.lexsort((rng.random(len(self.names)), self._classes))
        source = exchanged[self.codes[own]]
        begins = np.cumsum(self.sizes) - self.sizes
        found[own] = self._order[begins[source] + (rng.random(len(own)) * self.sizes[source]).astype(np.int64)]
        return found

    def among(self, nodes: Bools) -> "Clustering":
        """The clustering of some nodes."""
        kept = self.codes[nodes]
        used = np.unique(kept[kept >= 0])
        place = np.full(len(self.names) + 1, -1)
        place[used] = np.arange(len(used))
        return Clustering(self.key, tuple(self.names[each] for each in used.tolist()), place[kept])

    def spread(self, label: Bools) -> tuple[float, float]:
        """The variance between clusters over what chance gives, and how likely chance gives as much; both without the
        sickest cluster."""
        hits, sizes = self.hits(label), self.sizes
        observed = float(_spread(sizes, hits[None, :])[0])
        rng = np.random.default_rng(len(self.names))
        by_chance = _spread(sizes, rng.multivariate_hypergeometric(sizes, int(hits.sum()), _ROUNDS))
        return observed, float((1 + (by_chance >= observed).sum()) / (1 + _ROUNDS))


def _spread(sizes: Ints, hits: Ints) -> Floats:
    """Pearson's chi-squared over its degrees of freedom, of each row of hits, without the cluster that is the
    sickest."""
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
    """The attributes by which nodes may cluster, each at its node's moment."""
    node, key, value = values.at(moments)
    found = []
    for place, name in enumerate(values.keys):
        if not name.startswith(_PLACES):
            continue
        rows = (key == place) & (value >= 0)
        kinds, column, counts = np.unique(value[rows], return_inverse=True, return_counts=True)
        shared = counts >= LEAST_MEMBERS
        # Of a key that nearly every node has another value of, none is a cluster.
        if shared.sum() < LEAST_CLUSTERS or len(kinds) > nodes / 2:
            continue
        codes = np.full(nodes, -1)
        codes[node[rows]] = np.where(shared, np.cumsum(shared) - 1, -1)[column]
        found.append(Clustering(name, tuple(values.values[each] for each in kinds[shared].tolist()), codes))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SickClusters:
    """Sick nodes come in clusters by the values of `key`, of which there are `clusters`: `sick` are those with clearly
    more sick nodes than others, and `coverage` the share of all sick nodes that they have. `spread` is the variance
    between the others over what chance gives, `p` how likely chance gives as much."""

    key: str
    clusters: int
    sick: tuple[str, ...]
    coverage: float
    spread: float
    p: float


def active(clusterings: Sequence[Clustering], labels: Sequence[Bools]) -> tuple[Clustering, ...]:
    """Those whose clusters differ by more than chance in the nodes of any label; first what explains most of it: teams
    differ where their jobs do, and jobs explain more."""
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
