"""Whether somebody suffers on a core: what makes a finding critical."""

from exhume.diagnose.case import Case
from exhume.diagnose.symptoms import find_symptoms
from exhume.model.finding import Severity


def felt(case: Case, cpu: int | None) -> bool:
    """Whether the log, a waiting ksoftirqd or a core lost to the kernel tells of starvation; on this core, or on one
    that is not known."""
    grave = (each for each in find_symptoms(case) if each.severity is Severity.CRITICAL)
    return any(cpu is None or each.cpu is None or each.cpu == cpu for each in grave)
