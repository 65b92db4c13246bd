"""The scenarios, grouped by subsystem. A scenario makes one pathology for real on a stage, and ends with it."""

from exhume.lab.scenarios import cgroups, cpu, files, incident, memory, network
from exhume.lab.stage import Scenario

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for module in (cpu, memory, files, network, cgroups, incident)
    for scenario in module.SCENARIOS
}
