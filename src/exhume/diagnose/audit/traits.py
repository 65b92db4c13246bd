"""What stands out about a service: it crash-loops, flaps, failed, or was kept from starting. It is judged by its
history, not by its state at one moment."""

from exhume.model.audit import Condition, History, Manager, Service, Trait

# This many restarts per hour after failures are a loop. Kubernetes waits up to five minutes between two attempts,
# Docker a minute, systemd as long as the unit says: none of them is slower than this.
LOOP_PER_HOUR = 4.0
# Fewer failures than this happen on any day.
LEAST_ENDS = 3
# In a loop at least every other start fails.
MOSTLY = 0.5
# A manual restart after a quiet hour doesn't make a loop: earlier failures are past.
RECENT_S = 3600.0
# Without a history: a service this young that was restarted this often loops.
YOUNG_S = 60.0
YOUNG_RESTARTS = 5
# A service that was up this long did its work, however it ended.
WORKED_S = 600.0
# How long after an end a manager may still restart it: three times its longest back-off.
_WAITS_S = {Manager.CRI: 900.0, Manager.DOCKER: 180.0, Manager.PODMAN: 180.0}
# Exit codes of a container that was stopped by hand (Ctrl-C, kill, terminate), unless it ran out of memory.
_STOPPED_CODES = frozenset({0, 130, 137, 143})
_STOPPED_SIGNALS = frozenset({0, 2, 9, 15})
_ACTIVE = frozenset({"active", "reloading", "activating", "refreshing", "running", "restarting", "deactivating"})
_TRIGGERS = (".timer", ".path", ".socket")
_ENDED = frozenset({"exited", "dead", "stopped", "container_exited"})


def traits_of(service: Service, now: int) -> tuple[Trait, ...]:
    """The service's traits, the worst first; whether it was started by the image's default is left to the
    provenance."""
    if service.held_back and not is_active(service):
        # A fix holds it back, whatever it did before.
        return (Trait.CONDITION_FAILED,)
    found = []
    if _loops(service, now):
        found.append(Trait.CRASH_LOOP)
    elif has_failed(service):
        found.append(Trait.FAILED)
    elif service.wants.failed and not is_active(service):
        found.append(Trait.DEPENDENCY_FAILED)
    elif _flaps(service, now):
        found.append(Trait.FLAPPING)
    # It runs, but its own health check reports that it doesn't work.
    unhealthy = service.state == "running" and service.detail == "unhealthy"
    if service.manager is not Manager.SYSTEMD and unhealthy and not found:
        found.append(Trait.UNHEALTHY)
    if broken_conditions(service) and not is_active(service) and not found:
        found.append(Trait.CONDITION_FAILED)
    return tuple(found)


def is_active(service: Service) -> bool:
    """Whether its manager has it running or is about to start it."""
    return service.state in _ACTIVE


def is_between_starts(service: Service) -> bool:
    """Whether it just ended and its manager is waiting to restart it."""
    return service.detail.startswith("auto-restart") or service.state == "restarting"


def has_failed(service: Service) -> bool:
    """Whether it failed and stays down."""
    if service.manager is Manager.SYSTEMD:
        return service.state == "failed"
    out_of_memory = "oom" in service.result.lower() or "memory" in service.result.lower()
    return service.state.lower() in _ENDED and (out_of_memory or ended_badly(service))


def ended_badly(service: Service) -> bool:
    """Whether its last end was a failure, that is, not requested."""
    last = service.last_exit
    if last is None:
        return False
    if service.manager is Manager.SYSTEMD:
        return bool(last.code) or last.signal not in (None, 0, 15)
    return (last.code or 0) not in _STOPPED_CODES or (last.signal or 0) not in _STOPPED_SIGNALS


def has_worked(service: Service) -> bool | None:
    """Whether it ever did its work, as far back as can be seen; None if unknown."""
    if is_active(service) and not is_between_starts(service) and (service.age_s or 0) > YOUNG_S:
        return True
    history = service.history
    if history is not None and (history.longest_s or 0.0) >= WORKED_S:
        return True
    if history is not None and history.starts:
        if history.failures >= LEAST_ENDS and history.failures >= history.starts - (1 if is_active(service) else 0):
            return False
        return history.failures < history.starts or None
    if service.wants.failed and not is_active(service):
        return False
    if is_between_starts(service) and (service.restarts or 0) >= LEAST_ENDS:
        return False
    return None


def broken_conditions(service: Service) -> tuple[Condition, ...]:
    """The conditions that kept it from starting: one that was not met, or all of an either-or group."""
    plain = [each for each in service.conditions if not each.trigger and each.held is False]
    either = [each for each in service.conditions if each.trigger]
    if either and all(each.held is False for each in either):
        plain += either
    return tuple(plain)


def is_triggered(service: Service) -> bool:
    """Whether something else starts it each time: a timer's job comes and goes by design."""
    return any(each.endswith(_TRIGGERS) for each in service.wants.triggered_by) and not service.restarts


def _loops(service: Service, now: int) -> bool:
    if is_triggered(service) and not is_between_starts(service):
        return False
    history = service.history
    if history is not None and history.starts:
        return (
            history.failures >= LEAST_ENDS
            and history.failures >= MOSTLY * history.starts
            and pace_per_hour(service) >= LOOP_PER_HOUR
            and _is_recent(service, history, now)
        )
    if is_between_starts(service):
        return (service.restarts or 0) >= LEAST_ENDS
    return is_active(service) and _is_young(service) and (service.restarts or 0) >= YOUNG_RESTARTS


def _flaps(service: Service, now: int) -> bool:
    """Whether it comes and goes without a loop of failures: it is restarted again and again after successful ends, or
    fails now and then."""
    history = service.history
    if history is None or not history.starts:
        return False
    if is_triggered(service):
        # A job that fails each time, observed during another run.
        return history.failures >= max(LEAST_ENDS, MOSTLY * history.starts)
    if (service.restarts or 0) >= LEAST_ENDS and (history.restarts_per_hour or 0.0) >= LOOP_PER_HOUR:
        return _is_recent(service, history, now)
    return history.failures >= LEAST_ENDS


def pace_per_hour(service: Service) -> float:
    """Restarts per hour, over the last ends if their times are known: a loop that began ten minutes ago is one,
    whatever the day before was like."""
    history = service.history
    if history is None:
        return 0.0
    counted = history.restarts_per_hour or 0.0
    times = sorted(each.at for each in history.exits if each.at is not None)
    if len(times) < LEAST_ENDS:
        return counted
    seconds = (times[-1] - times[0]) / 1e9
    return max(counted, (len(times) - 1) * 3600.0 / seconds) if seconds > 0 else counted


def _is_recent(service: Service, history: History, now: int) -> bool:
    """Whether the trouble continues: it failed just now, is being restarted or about to be, or is young."""
    # Whether systemd is starting it again: on a starved node, the steps before the program itself may take many times
    # longer than usual.
    restarted = service.manager is Manager.SYSTEMD and service.state == "activating" and bool(service.restarts)
    if is_between_starts(service) or restarted or _is_young(service):
        return True
    if has_given_up(service):
        return False
    last = max((each.at for each in history.exits if each.at is not None), default=None)
    if last is None and service.last_exit is not None:
        last = service.last_exit.at
    if last is None:
        return not is_active(service) or service.age_s is None
    if service.restart_policy == "no" and service.restarts and not is_active(service):
        # Its restart policy was removed.
        return False
    pause = 3600.0 / max(pace_per_hour(service), LOOP_PER_HOUR)
    # What kubelet restarts belongs to a pod, whichever runtime runs it.
    manager = Manager.CRI if service.pod is not None else service.manager
    waits = YOUNG_S if service.wants.restarted_by else _WAITS_S.get(manager, 0.0)
    return (now - last) / 1e9 <= max(waits, min(RECENT_S, 3 * pause))


def has_given_up(service: Service) -> bool:
    """Whether its manager will not restart it: that is a failure, no longer a loop. A unit that another unit keeps
    starting is only down for the moment."""
    if service.state == "failed":
        return not service.wants.restarted_by
    policy, _, most = service.restart_policy.partition(":")
    tried = policy == "on-failure" and most.isdigit() and (service.restarts or 0) >= int(most) > 0
    return tried and service.state in _ENDED


def _is_young(service: Service) -> bool:
    return service.age_s is not None and service.age_s < YOUNG_S and is_active(service)
