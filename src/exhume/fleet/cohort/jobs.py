"""Failed jobs and incidents: how many failed jobs had a member on a node with an incident right before, compared with
how many would by chance."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exhume.fleet.cohort.census import Census, Episodes, places, whole
from exhume.fleet.cohort.statistics import Floats, Ints, by_chance_at_least, wilson
from exhume.model.clock import Wall
from exhume.model.finding import Estimate
from exhume.model.job_event import FAILURES as KINDS

WITHIN_S = 60
MOST_EXAMPLES = 5
# With more jobs than this the normal approximation is used, which is exact to the digits shown.
_EXACT = 20_000


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job with a member on a node with an incident right before."""

    job: str
    at: Wall
    node: str
    cause: str
    before_s: float


@dataclass(frozen=True, slots=True)
class JobView:
    """Of `failed` jobs, `explained` had a member on a node with an incident that was not over more than `within_s`
    seconds before the failure. `expected` is the number by chance: if each node's incidents had come at any other time
    of the window. `p` is the probability of at least as many by chance; `attributable` is the share of jobs beyond
    chance."""

    failed: int
    explained: int
    within_s: int
    share: Estimate
    expected: float
    p: float
    attributable: float
    examples: tuple[FailedJob, ...]


def jobs_of(census: Census) -> JobView | None:
    """Compare failed jobs with incidents; None if no job failed."""
    rows = census.failures.filter(pc.is_in(census.failures["kind"], value_set=pa.array([*KINDS, None], pa.string())))
    if not rows.num_rows:
        return None
    names = pa.array(census.nodes, pa.string())
    node, moment = places(rows["node"], names), whole(rows["moment"])
    # A failure without a job id counts as a separate job.
    unnamed = pc.binary_join_element_wise(rows["node"], rows["moment"].cast(pa.string()), "@")
    jobs = pc.if_else(pc.equal(rows["job"], ""), unnamed, rows["job"]).combine_chunks().dictionary_encode()
    job, texts = whole(jobs.indices), jobs.dictionary.to_pylist()
    return _view(census, node, moment, job, texts)


def _view(census: Census, node: Ints, moment: Ints, job: Ints, texts: list[str]) -> JobView:
    episodes = _by_node(census.episodes)
    incident = _incident_before(episodes, node, moment)
    chances = _chances(episodes, len(census.nodes), census.window.nanos / 1000)
    # The probability that none of the members' nodes has an incident; several members on one node count once.
    members = np.unique(np.stack([job, node]), axis=1)
    known = members[1] >= 0
    missed = np.bincount(members[0][known], np.log1p(-chances[members[1][known]]), len(texts))
    by_chance = 1 - np.exp(missed)
    explained = np.zeros(len(texts), bool)
    explained[job[incident >= 0]] = True
    hits, failed = int(explained.sum()), len(texts)
    expected = float(by_chance.sum())
    seen: set[int] = set()
    examples: list[FailedJob] = []
    for row in np.flatnonzero(incident >= 0).tolist():
        if job[row] not in seen and len(examples) < MOST_EXAMPLES:
            seen.add(job[row])
            which = int(incident[row])
            before = (moment[row] - episodes.moment[which]) / 1e6
            cause = episodes.text("cause", which)
            name = census.nodes[node[row]]
            examples.append(FailedJob(texts[job[row]], int(moment[row]) * 1000, name, cause, float(before)))
    return JobView(
        failed,
        hits,
        WITHIN_S,
        wilson(hits, failed),
        expected,
        by_chance_at_least(hits, by_chance[:_EXACT]) if failed <= _EXACT else _normal_tail(hits, by_chance),
        max(0.0, hits - expected) / failed,
        tuple(examples),
    )


def _by_node(episodes: Episodes) -> Episodes:
    """Incidents sorted by node and time."""
    return episodes.select(np.lexsort((episodes.moment, episodes.node)))


def _incident_before(episodes: Episodes, node: Ints, moment: Ints) -> Ints:
    """The node's last incident that began before each moment and was not over long before it; -1 for none."""
    if not len(episodes.node):
        return np.full(len(node), -1)
    # Microseconds since the earliest time: together with the node number they fit into 64 bits.
    start, width = int(min(episodes.moment.min(), moment.min())), 1 << 44
    keys = episodes.node * width + (episodes.moment - start)
    place = np.searchsorted(keys, node * width + (moment - start), "right") - 1
    at = np.maximum(place, 0)
    near = (place >= 0) & (episodes.node[at] == node) & (episodes.ended[at] >= moment - WITHIN_S * 1_000_000)
    return np.where(near, at, -1)


def _chances(episodes: Episodes, nodes: int, micros: float) -> Floats:
    """For each node the share of moments that come right after an incident, which is the probability if its incidents
    were shifted along the window by a random time."""
    if not len(episodes.node):
        return np.zeros(nodes)
    ends = episodes.ended + WITHIN_S * 1_000_000
    # If the node's next incident begins earlier, count only until then.
    following = np.append(episodes.moment[1:], np.iinfo(np.int64).max)
    following = np.where(np.append(np.diff(episodes.node) == 0, False), following, np.iinfo(np.int64).max)
    covered = np.minimum(ends, following) - episodes.moment
    share: Floats = np.bincount(episodes.node, covered, nodes) / micros
    return np.minimum(share, 1 - 1e-9)


def _normal_tail(hits: int, chances: Floats) -> float:
    from statistics import NormalDist

    spread = float(np.sqrt((chances * (1 - chances)).sum()))
    return 1 - NormalDist(float(chances.sum()), max(spread, 1e-9)).cdf(hits - 0.5)
