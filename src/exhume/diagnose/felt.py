"""Whether anybody suffered from what a core was taken for."""

from exhume.diagnose.case import Case
from exhume.diagnose.symptoms import find_symptoms

# A core that is lost to the kernel, softirqs that stood still, threads that queued, a driver that complained.
_STARVED = ("log", "hot-core", "ksoftirqd", "waiting")


def is_felt(case: Case, cpu: int | None) -> bool:
    """Whether something starved on a core; on any, where the trouble wanders."""
    return any(
        symptom.kind in _STARVED and (cpu is None or symptom.cpu is None or symptom.cpu == cpu)
        for symptom in find_symptoms(case)
    )
