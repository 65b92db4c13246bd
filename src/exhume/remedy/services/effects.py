"""What stopping a service should do to which measures: only what it was seen to cause, and no harm to the others."""

from exhume.model.audit import Judged, Service, Trait
from exhume.model.remedy import Effect, Measure

# Fewer starts tell no rhythm.
_FEW_STARTS = 2
# Nothing that is stopped may make these worse.
_WATCHED = (Measure.BUSIEST_CORE, Measure.KERNEL_CORE, Measure.THROTTLING, Measure.RECLAIM, Measure.NIC_TIMEOUTS)
# What a finding is about has to become better when its cause goes.
_BY_CAUSE = {
    "zombie-memcgs": (Measure.ZOMBIE_GROWTH, Measure.KERNEL_CORE),
    "cgroup-excess": (Measure.KERNEL_CORE,),
    "crash-loop": (Measure.FORKS,),
    "fork-storm": (Measure.FORKS, Measure.KERNEL_CORE),
    "memory-reclaim": (Measure.RECLAIM,),
    "oom-thrash": (Measure.RECLAIM,),
    "cfs-throttling": (Measure.THROTTLING,),
    "netns-cleanup": (Measure.KERNEL_CORE,),
    "softirq-storm": (Measure.BUSIEST_CORE,),
    "user-hog": (Measure.BUSIEST_CORE, Measure.RUN_QUEUE_WAIT),
}


def effects_of(service: Service, judged: Judged | None = None, cause: str = "") -> tuple[Effect, ...]:
    """What should change when it is stopped."""
    found = [Effect(measure, "fall") for measure in _BY_CAUSE.get(cause, ())]
    costs = service.costs
    if costs is not None and costs.cgroups_leaked:
        found.append(Effect(Measure.ZOMBIE_GROWTH, "fall"))
    named = {effect.measure for effect in found}
    watched = [Effect(measure, "stay") for measure in _WATCHED if measure not in named]
    return (*_restarts(service, judged), *dict.fromkeys(found), *watched)


def zombies_freed() -> tuple[Effect, ...]:
    """What freeing zombies should do."""
    return (Effect(Measure.ZOMBIES, "fall"),)


def _restarts(service: Service, judged: Judged | None) -> tuple[Effect, ...]:
    loops = judged is not None and any(trait in (Trait.CRASH_LOOP, Trait.FLAPPING) for trait in judged.traits)
    rate = service.history.restarts_per_hour if service.history is not None else None
    again = loops or service.restarts or rate or _is_driven(service)
    return (Effect(Measure.RESTARTS, "stop", service.key),) if again else ()


def _is_driven(service: Service) -> bool:
    """Whether a timer, a path or another unit starts it again and again; systemd does not count that as restarts."""
    history, wants = service.history, service.wants
    again = history is not None and history.starts > _FEW_STARTS and history.failures > _FEW_STARTS
    return again and bool(wants.triggered_by or wants.restarted_by)
