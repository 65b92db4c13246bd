"""What is drawn by lot for each run: the core, the lengths, the seed of the names, and the work around it."""

import random
from dataclasses import dataclass

from exhume.lab.background import BACKGROUNDS

QUIET = "quiet"
CALM_S = (6.0, 10.0)
LENGTH_S = (6.0, 12.0)
AFTER_S = (2.0, 3.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: so many seconds of calm, the scenario, and some seconds after it, beside background work."""

    number: int
    scenario: str
    seed: int
    core: int
    calm_s: float
    seconds: float
    after_s: float
    background: str


def draw(runs: dict[str, int], cores: list[int], seed: int | None = None) -> list[Plan]:
    """So many runs of each scenario, in a random order: what a run leaves behind meets different ones after it."""
    rng = random.Random(seed)
    order = [name for name, count in runs.items() for _ in range(count)]
    rng.shuffle(order)
    return [
        Plan(
            number=number,
            scenario=name,
            seed=rng.getrandbits(31),
            core=rng.choice(cores),
            calm_s=round(rng.uniform(*CALM_S), 1),
            seconds=round(rng.uniform(*LENGTH_S), 1),
            after_s=round(rng.uniform(*AFTER_S), 1),
            background=rng.choice(list(BACKGROUNDS)),
        )
        for number, name in enumerate(order, 1)
    ]
