"""Whether somebody suffers from what happens on a core: what turns a load into starvation."""

from exhume.diagnose.case import Case
from exhume.diagnose.symptoms import find_symptoms
from exhume.model.finding import Severity


def is_felt(case: Case, cpu: int | None) -> bool:
    """Whether a grave symptom (a log line, a core lost to the kernel, a ksoftirqd that waited) points to this core, or
    to none in particular. Without a core any of them counts."""
    return any(
        each.severity is Severity.CRITICAL and (cpu is None or each.cpu in (None, cpu)) for each in find_symptoms(case)
    )
