"""The scenarios, grouped by subsystem. A scenario creates one real pathology on a stage, which ends with it."""

from exhume.lab.scenarios import cpu, files, healthy, incident, memory, network
from exhume.lab.stage import Scenario
from exhume.model.errors import UsageError

SCENARIOS: dict[str, Scenario] = {
    each.name: each
    for module in (cpu, memory, files, network, incident, healthy)
    for each in vars(module).values()
    if isinstance(each, Scenario)
}


def scenario_named(name: str) -> Scenario:
    """The scenario with a name. Raises UsageError if there is none."""
    if name not in SCENARIOS:
        raise UsageError(f"the lab has no scenario {name!r}; exhume lab list shows them")
    return SCENARIOS[name]
