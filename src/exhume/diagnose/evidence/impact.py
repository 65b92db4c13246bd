"""Impact: whether other work suffers from what happens on a core, which turns a load into starvation."""

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import CORE_TAKEN, Load
from exhume.diagnose.symptoms import find_symptoms
from exhume.model.finding import Severity


def has_symptom(case: Case, cpu: int | None) -> bool:
    """Whether a critical symptom (a log line, a core lost to the kernel, a ksoftirqd that waited) points to this core,
    or to none in particular. Without a core any of them counts."""
    return any(
        each.severity is Severity.CRITICAL and (cpu is None or each.cpu in (None, cpu)) for each in find_symptoms(case)
    )


def hurts_others(case: Case, cpu: int | None) -> bool:
    """Whether other work is known to suffer from what happens on this core: its ksoftirqd or its threads waited, or a
    critical line in the log points there. A busy core is not enough, nor is a line that only warns."""
    return any(
        (each.kind in ("ksoftirqd", "waiting") or (each.kind == "log" and each.severity is Severity.CRITICAL))
        and (cpu is None or each.cpu in (None, cpu))
        for each in find_symptoms(case)
    )


# A load that is spread over the cores matters by its part of the node.
_MUCH_OF_THE_NODE, _SOME_OF_THE_NODE = 0.25, 0.1
_CRITICAL_S, _WARNING_S = 2.0, 1.0


def severity_of(case: Case, load: Load) -> Severity:
    """How much a load matters: one core that is taken, with symptoms, is critical, however many others there are; a
    load that is spread over the node, or moves, counts by its part of the node or by what one process spends on it."""
    spread = load.cores / case.cores
    owned = load.cores * load.owner.part if load.owner is not None else 0.0
    critical = load.core_s >= _CRITICAL_S or (load.taken_s >= _CRITICAL_S and spread >= _MUCH_OF_THE_NODE)
    if critical and has_symptom(case, load.cpu if load.core_s >= _CRITICAL_S else None):
        return Severity.CRITICAL
    if load.core_s >= _WARNING_S or owned >= CORE_TAKEN or spread >= _SOME_OF_THE_NODE:
        return Severity.WARNING
    return Severity.INFO
